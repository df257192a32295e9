"""Models for other tools: MLflow folders, model cards, and the Hugging Face hub."""

from labelfield.share.card import model_card
from labelfield.share.hub import hub_folder, push_to_hub
from labelfield.share.mlflow import save_mlflow

__all__ = ["hub_folder", "model_card", "push_to_hub", "save_mlflow"]
