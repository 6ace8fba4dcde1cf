//! Building blocks of pages. Every text in them is escaped by `maud`.

use maud::{Markup, Render, html};

pub(super) fn heading(title: &str, sentence: &str) -> Markup {
    html! { div.intro { h1 { (title) } p.soft { (sentence) } } }
}

/// Figure at the top of a page.
pub(super) struct Fact {
    pub(super) term: String,
    /// Class of the value's colour.
    pub(super) tone: Option<&'static str>,
    pub(super) value: String,
    /// Explanation below the value.
    pub(super) small: String,
}

impl Fact {
    pub(super) fn new(
        term: impl Into<String>,
        value: impl ToString,
        small: impl Into<String>,
    ) -> Self {
        Self { term: term.into(), tone: None, value: value.to_string(), small: small.into() }
    }
}

pub(super) fn facts(all: impl IntoIterator<Item = Fact>) -> Markup {
    html! {
        dl.facts {
            @for Fact { term, tone, value, small } in all {
                div { dt { (term) } dd class=[tone] { (value) small { (small) } } }
            }
        }
    }
}

pub(super) fn note(class: &str, subject: &str, text: &str) -> Markup {
    html! { p class=(class) role="note" { strong { (subject) } " " (text) } }
}

pub(super) fn section(anchor: &str, label: &str, content: &Markup) -> Markup {
    html! {
        section aria-labelledby=(anchor) { h2 id=(anchor) { (label) } (content) }
    }
}

pub(super) fn folded(label: &str, content: &Markup) -> Markup {
    html! { details.card { summary { (label) } (content) } }
}

pub(super) fn cell(content: impl Render) -> Markup {
    content.render()
}

/// Table under construction: the first `left` columns are left-aligned.
pub(super) struct HtmlTable<'a> {
    caption: &'a str,
    left: usize,
    head: &'a [&'a str],
    /// Finished row groups: each but the first begins with a heading.
    groups: Vec<Vec<Markup>>,
}

impl<'a> HtmlTable<'a> {
    pub(super) fn new(caption: &'a str, left: usize, head: &'a [&'a str]) -> Self {
        Self { caption, left, head, groups: vec![Vec::new()] }
    }

    fn align(&self, column: usize) -> Option<&'static str> {
        (column < self.left).then_some("l")
    }

    fn push(&mut self, row: Markup) {
        self.groups.last_mut().expect("there is one from the start").push(row);
    }

    pub(super) fn row(&mut self, class: &str, cells: impl IntoIterator<Item = impl Render>) {
        let row = html! {
            tr class=(class) {
                @for (column, cell) in cells.into_iter().enumerate() {
                    @if column == 0 {
                        th scope="row" class=[self.align(column)] { (cell) }
                    } @else {
                        td class=[self.align(column)] { (cell) }
                    }
                }
            }
        };
        self.push(row);
    }

    pub(super) fn group(&mut self, heading: impl Render) {
        self.groups.push(Vec::new());
        let columns = self.head.len();
        self.push(html! {
            tr.group { th.l scope="rowgroup" colspan=(columns) { span { (heading) } } }
        });
    }

    /// Returns the table in a box that scrolls, with the keyboard too: for screens of phones.
    pub(super) fn finish(&self) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label=(self.caption) {
                table {
                    caption { span { (self.caption) } }
                    thead {
                        tr {
                            @for (column, title) in self.head.iter().enumerate() {
                                th scope="col" class=[self.align(column)] { (title) }
                            }
                        }
                    }
                    @for rows in &self.groups {
                        tbody { @for row in rows { (row) } }
                    }
                }
            }
        }
    }
}
