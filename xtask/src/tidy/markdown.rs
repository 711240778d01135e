//! Links and headings of a markdown page (CommonMark, with GitHub's tables and anchors). Code holds neither.

use std::collections::{BTreeMap, BTreeSet};

/// What other pages and the page itself can link to, and where it links to.
pub struct MarkdownPage {
    pub links: Vec<MarkdownLink>,
    pub anchors: BTreeSet<String>,
    /// Its text, without code: paragraphs, list items, headings and rows of tables.
    pub blocks: Vec<TextBlock>,
}

pub struct MarkdownLink {
    /// Counted from 1.
    pub line: usize,
    pub target: String,
}

/// Lines that are read as one text, in which a code span or a link may wrap.
#[derive(Default)]
pub struct TextBlock {
    /// Counted from 1.
    pub first_line: usize,
    pub text: String,
    pub kind: BlockKind,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockKind {
    #[default]
    Paragraph,
    /// The text begins with the item's marker.
    ListItem,
    Heading,
    TableRow,
}

/// The fence that a block of code began with.
struct CodeFence {
    mark: char,
    length: usize,
}

#[derive(Default)]
struct BlockReader {
    blocks: Vec<TextBlock>,
    headings: Vec<String>,
    current: TextBlock,
    fence: Option<CodeFence>,
    /// Columns at which the contents of the open list items begin.
    items: Vec<usize>,
}

impl MarkdownPage {
    pub fn parse(text: &str) -> MarkdownPage {
        let mut reader = BlockReader::default();
        for (index, line) in text.lines().enumerate() {
            reader.read(index + 1, &line.replace('\t', "    "));
        }
        reader.end_block();
        let links = reader.blocks.iter().flat_map(TextBlock::links).collect();
        MarkdownPage { links, anchors: anchors(&reader.headings), blocks: reader.blocks }
    }
}

impl BlockReader {
    fn read(&mut self, number: usize, line: &str) {
        let text = line.trim_start().trim_start_matches("> ");
        if let Some(fence) = &self.fence {
            if fence.is_closed_by(text) {
                self.fence = None;
            }
            return;
        }
        if text.is_empty() {
            return self.end_block();
        }
        let indent = line.len() - line.trim_start().len();
        let paragraph = !self.current.text.is_empty();
        if !paragraph {
            self.items.retain(|&column| column <= indent);
            if indent >= self.items.last().unwrap_or(&0) + 4 {
                return;
            }
        }
        if let Some(fence) = CodeFence::open(text) {
            self.end_block();
            self.fence = Some(fence);
            return;
        }
        if let Some(heading) = heading(text) {
            self.end_block();
            self.headings.push(heading.to_string());
            self.add_line(number, text);
            self.current.kind = BlockKind::Heading;
            return self.end_block();
        }
        let marker = list_marker(text);
        if marker > 0 {
            self.end_block();
            self.items.retain(|&column| column <= indent);
            self.items.push(indent + marker);
            self.current.kind = BlockKind::ListItem;
        }
        let row = text.starts_with('|');
        if row {
            self.end_block();
            self.current.kind = BlockKind::TableRow;
        }
        self.add_line(number, text);
        if row {
            self.end_block();
        }
    }

    fn add_line(&mut self, number: usize, text: &str) {
        if self.current.text.is_empty() {
            self.current.first_line = number;
        } else {
            self.current.text.push('\n');
        }
        self.current.text.push_str(text);
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.current);
        if !block.text.is_empty() {
            self.blocks.push(block);
        }
    }
}

impl CodeFence {
    fn open(text: &str) -> Option<CodeFence> {
        let mark = text.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
        let length = run_length(text, mark);
        let info = &text[length..];
        (length >= 3 && (mark == '~' || !info.contains('`'))).then_some(CodeFence { mark, length })
    }

    fn is_closed_by(&self, text: &str) -> bool {
        let length = run_length(text, self.mark);
        length >= self.length && text[length..].trim().is_empty()
    }
}

fn run_length(text: &str, mark: char) -> usize {
    text.chars().take_while(|c| *c == mark).count()
}

/// The text of `# heading`.
fn heading(text: &str) -> Option<&str> {
    let level = run_length(text, '#');
    let rest = &text[level..];
    ((1..=6).contains(&level) && (rest.is_empty() || rest.starts_with(' ')))
        .then(|| rest.trim().trim_end_matches('#').trim_end())
}

/// How many columns `* ` or `12. ` takes at the beginning of a line; 0 if there is none.
pub fn list_marker(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let marks: &[&str] = if digits == 0 { &["* ", "- ", "+ "] } else { &[". ", ") "] };
    let rest = &text[digits..];
    if digits > 9 || !marks.iter().any(|mark| rest.starts_with(mark)) {
        return 0;
    }
    let content = rest[1..].trim_start();
    text.len() - content.len()
}

impl TextBlock {
    /// The text without list marker, `x` in the place of each code span, and links without their targets.
    pub fn plain(&self) -> String {
        let text = &self.text[if self.kind == BlockKind::ListItem { list_marker(&self.text) } else { 0 }..];
        let (mut plain, mut at) = (String::new(), 0);
        while let Some(c) = text[at..].chars().next() {
            if c == '`' {
                at = code_end(text, at);
                plain.push_str("`x`");
            } else {
                at += c.len_utf8();
                plain.push(c);
            }
        }
        link_text(&plain)
    }

    fn links(&self) -> Vec<MarkdownLink> {
        let text = self.text.as_str();
        let mut links = Vec::new();
        let (mut at, mut brackets) = (0, 0_usize);
        if let Some(target) = definition(text) {
            links.push(MarkdownLink { line: self.first_line, target: target.to_string() });
        }
        while let Some(c) = text[at..].chars().next() {
            let next = at + c.len_utf8();
            match c {
                '\\' => at = next + text[next..].chars().next().map_or(0, char::len_utf8),
                '`' => at = code_end(text, at),
                '[' => (at, brackets) = (next, brackets + 1),
                ']' => {
                    let target = if brackets > 0 { target(&text[next..]) } else { None };
                    brackets = brackets.saturating_sub(1);
                    if let Some(target) = target {
                        let line = self.first_line + text[..at].matches('\n').count();
                        links.push(MarkdownLink { line, target: target.to_string() });
                    }
                    at = next;
                }
                _ => at = next,
            }
        }
        links
    }
}

/// Where the code span that begins at `start` ends: behind as many backticks, or behind those at `start` if none follow.
fn code_end(text: &str, start: usize) -> usize {
    let length = run_length(&text[start..], '`');
    let mut at = start + length;
    while let Some(found) = text[at..].find('`') {
        at += found;
        let run = run_length(&text[at..], '`');
        at += run;
        if run == length {
            return at;
        }
    }
    start + length
}

/// The target in `(target)` or `(<target> "title")` at the beginning of a text.
fn target(text: &str) -> Option<&str> {
    let text = text.strip_prefix('(')?.trim_start();
    let (target, rest) = split_target(text)?;
    let rest = rest.trim_start();
    let titled = rest.starts_with(['"', '\'', '(']) && rest.contains(')');
    (rest.starts_with(')') || titled).then_some(target)
}

/// The target in `[label]: target`, a definition that other links refer to. Footnotes (`[^1]: text`) are none.
fn definition(text: &str) -> Option<&str> {
    let (label, rest) = text.strip_prefix('[')?.split_once("]:")?;
    let (target, _) = split_target(rest.trim_start())?;
    (!label.contains(']') && !label.starts_with('^') && !target.is_empty()).then_some(target)
}

/// A target, up to a space or a bracket that closes more than it opens, and what follows it.
fn split_target(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>');
    }
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        let ends = c.is_whitespace() || (c == ')' && depth == 0);
        if ends {
            return Some(text.split_at(at));
        }
        depth = match c {
            '(' => depth + 1,
            ')' => depth - 1,
            _ => depth,
        };
    }
    Some((text, ""))
}

/// The anchors that GitHub gives to headings: words in lower case with `-` between them, and a number where they repeat.
fn anchors(headings: &[String]) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let words = link_text(heading).to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// A text without the targets of its links: of a heading they are no part of its anchor.
fn link_text(linked: &str) -> String {
    let mut text = String::new();
    let mut rest = linked;
    while let Some(end) = rest.find("](") {
        text.push_str(&rest[..end]);
        let behind = &rest[end + 1..];
        rest = behind.find(')').map_or("", |close| &behind[close + 1..]);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(text: &str) -> Vec<String> {
        MarkdownPage::parse(text).links.iter().map(|l| format!("{} {}", l.line, l.target)).collect()
    }

    fn page_anchors(text: &str) -> Vec<String> {
        MarkdownPage::parse(text).anchors.into_iter().collect()
    }

    #[test]
    fn links_are_found_in_paragraphs_lists_tables_headings_and_images() {
        let text = "# [h](1.md)\na [b](2.md) and\n[c\nd](3.md \"title\")\n\n* [e](<4 5.md>)\n  [f](6(7).md)\n\n      * [g](8.md)\n\n\
                    | [i](9.md) | `|` |\n> [j](10.md)\n\n[![k](11.png)](12.md)\n\n[label]: 13.md\n";
        assert_eq!(
            links(text),
            [
                "1 1.md",
                "2 2.md",
                "4 3.md",
                "6 4 5.md",
                "7 6(7).md",
                "11 9.md",
                "12 10.md",
                "14 11.png",
                "14 12.md",
                "16 13.md"
            ]
        );
    }

    #[test]
    fn code_holds_no_links() {
        for text in [
            "```rust\n[a](b.md)\n```",
            "````\n```\n[a](b.md)\n````",
            "~~~\n```\n[a](b.md)\n~~~",
            "text\n\n    [a](b.md)\n\n    [a](b.md)",
            "* item\n\n      [a](b.md)",
            "`[a](b.md)`",
            "`wraps\n[a](b.md)` here",
            "``a ` [a](b.md)``",
            "\\[a](b.md)",
            "a](b.md)",
            "`tml.functions()[i](args)`",
        ] {
            assert_eq!(links(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_follows_code_is_read_again() {
        assert_eq!(links("```\nx\n```\n[a](b.md)"), ["4 b.md"]);
        assert_eq!(links("    x\n\n[a](b.md)"), ["3 b.md"]);
        assert_eq!(links("a ` alone [a](b.md)"), ["1 b.md"]);
        assert_eq!(links("| `a | b |\n| [c](d.md) ` |"), ["2 d.md"]);
        assert_eq!(links("* item\n\n  [a](b.md)\n\nend\n\n    [c](d.md)"), ["3 b.md"]);
        assert_eq!(links("a\n    [still](b.md)"), ["2 b.md"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# What a `tapml check` says, and why\n## Twice\n### Twice ##\n## [Link](x.md) to_it – 8-bit\n    # code\n\n    # code";
        assert_eq!(
            page_anchors(text),
            ["link-to_it--8-bit", "twice", "twice-1", "what-a-tapml-check-says-and-why"]
        );
        assert_eq!(page_anchors("```\n# no\n```\n#no\n"), Vec::<String>::new());
    }
}
