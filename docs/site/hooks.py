# SPDX-License-Identifier: Apache-2.0
"""Brings the repository's pages into the site, with all files that they link to, each at its path."""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s]+)")
TEST = re.compile(r"^ *<!-- (?:needs|before|network): .* -->\n", re.M)  # what only the tests of the pages read
INTRODUCTION = "<!-- the introduction of README.md -->"


def linked(page, target):
    """The path that a page's link leads to; a folder's is that of a page. None if there is none in the repository."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    if not (ROOT / path).exists():
        return None
    if (ROOT / path).is_dir():
        readme = path + "/README.md"
        return readme if (ROOT / readme).exists() else path + "/index.md"
    return path


def on_files(files, config):
    def add(path):
        if files.get_file_from_path(path):
            return
        if not (ROOT / path).exists():
            if posixpath.basename(path) != "index.md":  # mkdocs tells
                return
            # a folder without a README
            files.append(File.generated(config, path, content=listing(posixpath.dirname(path))))
            for name in names(posixpath.dirname(path)):
                add(posixpath.join(posixpath.dirname(path), name))
            return
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
        if not path.endswith(".md"):
            return
        for _, target in LINK.findall((ROOT / path).read_text()):
            if found := linked(path, target):
                add(found)

    for page in sorted(ROOT.glob("docs/*.md")):
        add(str(page.relative_to(ROOT)))
    for section in config.nav:
        for pages in section.values():
            for entry in pages if isinstance(pages, list) else []:
                add(*entry.values())
    return files


def names(folder):
    return sorted(name for name in os.listdir(ROOT / folder) if (ROOT / folder / name).is_file())


def listing(folder):
    return "# " + folder + "\n\n" + "".join(f"- [{name}]({name})\n" for name in names(folder))


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri == "index.md":
        readme = (ROOT / "README.md").read_text()
        return markdown.replace(INTRODUCTION, re.search(r"^# .*\n\n((?:\S.*\n)+)", readme).group(1))

    def to_page(match):
        path = linked(page.file.src_uri, match[2])
        return match[1] + posixpath.relpath(path, posixpath.dirname(page.file.src_uri)) if path else match[0]

    return LINK.sub(to_page, TEST.sub("", markdown))
