//! Building blocks of HTML.

pub(super) use crate::text::escape;

pub(super) fn heading(title: &str, sentence: &str) -> String {
    let title = escape(title);
    format!("<div class=\"intro\"><h1>{title}</h1><p class=\"soft\">{sentence}</p></div>\n")
}

pub(super) fn facts(all: &[(String, Option<&str>, String, String)]) -> String {
    let fact = |(term, class, value, small): &(String, Option<&str>, String, String)| {
        let class = class.map_or(String::new(), |class| format!(" class=\"{class}\""));
        format!("<div><dt>{term}</dt><dd{class}>{value}<small>{small}</small></dd></div>")
    };
    format!("<dl class=\"facts\">{}</dl>\n", all.iter().map(fact).collect::<String>())
}

pub(super) fn note(class: &str, what: &str, text: &str) -> String {
    format!("<p class=\"{class}\" role=\"note\"><strong>{what}</strong> {text}</p>\n")
}

pub(super) fn section(anchor: &str, label: &str, content: &str) -> String {
    format!(
        "<section aria-labelledby=\"{anchor}\"><h2 id=\"{anchor}\">{label}</h2>\n{content}</section>\n"
    )
}

pub(super) fn folded(label: &str, content: &str) -> String {
    format!("<details class=\"card\"><summary>{}</summary>{content}</details>\n", escape(label))
}

/// Table under construction. Cells are HTML; the caller escapes names.
pub(super) struct HtmlTable {
    html: String,
    left: usize,
}

impl HtmlTable {
    pub(super) fn new(caption: &str, left: usize, head: &[&str]) -> Self {
        // Tables wider than a phone scroll, with the keyboard too.
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\
             <caption><span>{0}</span></caption><thead><tr>",
            escape(caption)
        );
        for (i, cell) in head.iter().enumerate() {
            let class = if i < left { " class=\"l\"" } else { "" };
            html.push_str(&format!("<th scope=\"col\"{class}>{}</th>", escape(cell)));
        }
        html.push_str("</tr></thead><tbody>\n");
        Self { html, left }
    }

    pub(super) fn row(&mut self, class: &str, cells: &[String]) {
        self.html.push_str(&format!("<tr class=\"{class}\">"));
        for (i, cell) in cells.iter().enumerate() {
            let left = if i < self.left { " class=\"l\"" } else { "" };
            if i == 0 {
                self.html.push_str(&format!("<th scope=\"row\"{left}>{cell}</th>"));
            } else {
                self.html.push_str(&format!("<td{left}>{cell}</td>"));
            }
        }
        self.html.push_str("</tr>\n");
    }

    pub(super) fn group(&mut self, heading: &str, columns: usize) {
        self.html.push_str(&format!(
            "</tbody><tbody><tr class=\"group\"><th scope=\"rowgroup\" class=\"l\" \
             colspan=\"{columns}\"><span>{heading}</span></th></tr>\n"
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.html.push_str("</tbody></table></div>\n");
        self.html
    }
}
