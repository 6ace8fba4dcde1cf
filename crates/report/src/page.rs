//! HTML reports: self-contained files without network access.

mod bench;
mod data;
mod html;
mod matrix;
mod run;
mod sweep;

pub use bench::bench_page;
pub use matrix::matrix_page;
pub use run::run_page;
pub use sweep::sweep_page;

use faircast_base::escaped_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Vendored plotting library: see `vendor/uplot/README.md`.
const UPLOT_JS: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
/// Licence of the library, to be included in every copy.
const UPLOT_LICENSE: &str = include_str!("../vendor/uplot/LICENSE");
const UPLOT_CSS: &str = include_str!("../vendor/uplot/uPlot.min.css");
const PAGE_JS: &str = include_str!("page/page.js");
const PAGE_CSS: &str = include_str!("page/page.css");

const THEME_JS: &str = "try{const t=localStorage.getItem('faircast-theme');\
    if(t)document.documentElement.dataset.theme=t}catch{}";

/// Content security policy, which proves that the page makes no network request.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    img-src data:";

struct Page<'a> {
    title: &'a str,
    /// Kind of report, shown beside the program's name.
    kind: &'a str,
    /// Anchor and label of each link.
    navigation: &'a [(String, String)],
    main: Markup,
    footer: Markup,
    /// JSON for the page's script.
    data: &'a str,
}

impl Page<'_> {
    fn render(&self) -> String {
        // Inside a script element only "</script" and "<!--" have a meaning to the HTML parser.
        let data = self.data.replace('<', "\\u003c");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " – faircast" }
                    link rel="icon" href="data:,";
                    style { (PreEscaped(UPLOT_CSS)) "\n" (PreEscaped(PAGE_CSS)) }
                    script { (PreEscaped(THEME_JS)) }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    (self.bar())
                    main.wrap #main { (self.main) }
                    footer {
                        div.wrap { (self.footer) p { "Plots by uPlot 1.6.32 (MIT licence)." } }
                    }
                    script type="application/json" id="data" { (PreEscaped(data)) }
                    script {
                        (PreEscaped("/*! uPlot 1.6.32\n")) (PreEscaped(UPLOT_LICENSE))
                        (PreEscaped("*/\n")) (PreEscaped(UPLOT_JS))
                    }
                    script { (PreEscaped(PAGE_JS)) }
                }
            }
        };
        // A name may hide or turn text by format characters; the page's own text has none.
        escaped_lines(&page.into_string()).into_owned() + "\n"
    }

    fn bar(&self) -> Markup {
        html! {
            div.top {
                div.wrap {
                    div.brand { "faircast " span { (self.kind) } }
                    nav aria-label="Sections" {
                        @for (anchor, label) in self.navigation {
                            a href={ "#" (anchor) } { (label) }
                        }
                    }
                    button type="button" id="theme" hidden { "Dark" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
