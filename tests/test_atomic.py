"""Files are replaced whole, and nothing else is."""

import os

import pytest

from labelfield.atomic import replacing_file


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
