"""Text: reading documents and vocabularies, and encoders that turn documents into sparse rows."""

from labelfield.text.documents import Documents
from labelfield.text.reading import read_documents
from labelfield.text.vocabulary import Label, LabelVocabulary, read_vocabulary
from labelfield.text.words import WordEncoder

__all__ = ["Documents", "Label", "LabelVocabulary", "WordEncoder", "read_documents", "read_vocabulary"]
