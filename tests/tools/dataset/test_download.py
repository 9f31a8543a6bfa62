"""Downloads up to the wire: a server of our own that sends all, half, nothing, or something else."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from understudy.core.errors import ConfigError, DataError
from understudy.data.formats.hdf5 import MAGIC
from understudy.tools.dataset.download import SERVER, d4rl_files, download_d4rl

CONTENT = MAGIC + bytes(range(256)) * 8000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
NAME, FILE = "hopper-medium-v2", "hopper_medium-v2.hdf5"


class Server(ThreadingHTTPServer):
    """What it does is set by the test; what was asked of it is kept."""

    content = CONTENT
    cut = 1 << 30
    tag = '"1"'
    shift = 0
    asked: list[str]
    sent: int = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range", "")
        server.asked.append(wanted)
        if self.path != f"/mirror/gym_mujoco_v2/{FILE}":
            self.send_error(404)
            return
        same = wanted and self.headers.get("If-Range") == server.tag
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if same else 0
        if first >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if same else 200)
        if same:
            self.send_header("Content-Range", f"bytes {first + server.shift}-{len(server.content) - 1}/*")
        self.send_header("Content-Length", str(len(server.content) - first))
        self.send_header("ETag", server.tag)
        self.end_headers()
        block = server.content[first : first + server.cut]
        server.sent += len(block)
        self.wfile.write(block)

    def log_message(self, *words: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/mirror/"


def test_a_file_comes_whole_and_once(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        file, digest = download_d4rl(NAME, tmp_path, server=address(server), sha256=DIGEST)
        assert (file, digest) == (tmp_path / FILE, DIGEST)
        assert file.read_bytes() == CONTENT
    assert len(server.asked) == 1  # the second time it was there
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE]
    with pytest.raises(DataError, match=r"hopper_medium-v2.hdf5: has another sha256"):
        download_d4rl(NAME, tmp_path, server=address(server), sha256="0" * 64)


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = 1_000_000
    with pytest.raises(DataError, match=r"could not be fetched .* the same command goes on"):
        download_d4rl(NAME, tmp_path, server=address(server))
    assert not (tmp_path / FILE).exists()
    assert (tmp_path / f"{FILE}.part").stat().st_size == 1_000_000
    server.cut = 1 << 30
    file, digest = download_d4rl(NAME, tmp_path, server=address(server))
    assert (server.asked[-1], digest) == ("bytes=1000000-", DIGEST)
    assert server.sent == len(CONTENT)  # nothing came twice
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_another_version_is_fetched_from_its_beginning(server: Server, tmp_path: Path) -> None:
    server.cut = 1_000_000
    with pytest.raises(DataError):
        download_d4rl(NAME, tmp_path, server=address(server))
    server.cut, server.tag, server.content = 1 << 30, '"2"', MAGIC + b"other" * 400_000
    file, _ = download_d4rl(NAME, tmp_path, server=address(server))
    assert file.read_bytes() == server.content


def test_what_came_whole_without_getting_its_name_is_fetched_again(server: Server, tmp_path: Path) -> None:
    """A server refuses to send what lies behind the end of a file."""
    (tmp_path / f"{FILE}.part").write_bytes(CONTENT)
    (tmp_path / f"{FILE}.part.tag").write_text(server.tag)
    file, digest = download_d4rl(NAME, tmp_path, server=address(server))
    assert server.asked == [f"bytes={len(CONTENT)}-", ""]
    assert (digest, [entry.name for entry in tmp_path.iterdir()]) == (DIGEST, [file.name])


def test_another_part_than_was_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    server.cut, server.shift = 1_000_000, 1
    for told in ("could not be fetched", r"another part than was asked for \('bytes 1000001-"):
        with pytest.raises(DataError, match=told):
            download_d4rl(NAME, tmp_path, server=address(server))
    assert (tmp_path / f"{FILE}.part").stat().st_size == 1_000_000


def test_what_is_wrong_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"what came has another sha256: got .*, expected 0000"):
        download_d4rl(NAME, tmp_path, server=address(server), sha256="0" * 64)
    server.content = b"<html>moved</html>"
    with pytest.raises(DataError, match="what came is no HDF5 file: got b'<html>"):
        download_d4rl(NAME, tmp_path, server=address(server))
    with pytest.raises(DataError, match=r"the server refused it \(404 Not Found\).* --from"):
        download_d4rl(NAME, tmp_path, server=address(server) + "elsewhere")
    with pytest.raises(DataError, match="could not be fetched"):
        download_d4rl(NAME, tmp_path, server="http://127.0.0.1:9/")
    assert list(tmp_path.iterdir()) == []


def test_names_and_words(tmp_path: Path) -> None:
    assert d4rl_files()[NAME] == f"gym_mujoco_v2/{FILE}"
    assert SERVER.startswith("http")
    with pytest.raises(DataError, match=r"Did you mean 'hopper-medium-v2'"):
        download_d4rl("hoper-medium-v2", tmp_path)
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        download_d4rl(NAME, tmp_path, sha256="abc")
    with pytest.raises(ConfigError, match="not the address of a server"):
        download_d4rl(NAME, tmp_path, server="file:///etc")
