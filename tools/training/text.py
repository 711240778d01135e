"""The plain text of Standard Ebooks productions, and which chapters no model is trained on."""
import html
import re
import subprocess

# Of the files of a book every so many-th is held out.
HELD_OUT = 20
# Files of a book that are not its text.
MATTER = re.compile(r"(titlepage|imprint|colophon|uncopyright|halftitlepage|dedication|epigraph|endnotes|loi)\.xhtml$")


def plain(xhtml):
    """A line for each paragraph, heading or line of verse."""
    body = re.sub(r"(?s)^.*?<body[^>]*>|</body>.*$", "", xhtml)
    body = re.sub(r"(?s)<a [^>]*noteref[^>]*>.*?</a>", "", body)
    body = re.sub(r"\s+", " ", body)
    body = re.sub(r"<br ?/>|</(p|h\d|tr|li|header)>", "\n", body)
    text = html.unescape(re.sub(r"<[^>]+>", "", body)).replace("\u2060", "").replace("\ufeff", "")
    lines = (re.sub(r"[ \u00a0\u200a\u202f]+", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line) + "\n"


def git(repository, *arguments):
    done = subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True)
    return done.stdout.decode()


def chapters(repository):
    """The chapters of a production, in the order of its spine."""
    spine = git(repository, "show", "HEAD:src/epub/content.opf")
    names = re.findall(r'<itemref idref="([^"]+\.xhtml)"', spine)
    kept = [name for name in names if not MATTER.search(name)]
    return [plain(git(repository, "show", f"HEAD:src/epub/text/{name}")) for name in kept]


def corpus(repositories):
    """Texts to train on, and texts held out, of clones of productions (bare ones too)."""
    train, held = [], []
    for repository in repositories:
        for index, chapter in enumerate(chapters(repository)):
            (held if index % HELD_OUT == HELD_OUT // 2 else train).append(chapter)
    return train, held
