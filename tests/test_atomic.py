"""Files are replaced whole, and nothing else is."""

import os

import pytest

from labelfield import atomic
from labelfield.atomic import exchange_folders, replacing_file, replacing_folder


def write(path, text="new"):
    with replacing_file(path) as new:
        new.write_text(text)


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_what_is_no_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError, match=f"{name} is not a file; choose another name"):
            write(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    assert not list((tmp_path / "folder").iterdir())


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_text("old")

    def fail():
        with replacing_file(tmp_path / "a") as new:
            new.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_folders_change_places_or_stay(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda a, b: False)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(name)
    exchange_folders(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name / "name").read_text() for name in ("a", "b")] == ["b", "a"]
    with pytest.raises(FileNotFoundError):
        exchange_folders(tmp_path / "a", tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a" / "name").read_text() == "b"


def test_a_folder_is_replaced_with_and_without_an_exchange(tmp_path, monkeypatch):
    for number, can_exchange in enumerate((True, False)):
        if not can_exchange:
            monkeypatch.setattr(atomic, "_exchange", lambda a, b: False)
        for text in ("old", "new"):
            with replacing_folder(tmp_path / f"m{number}", ["a"]) as folder:
                (folder / "a").write_text(text)
        assert (tmp_path / f"m{number}" / "a").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m0", "m1"]


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="link"):
        write(tmp_path / "a")
