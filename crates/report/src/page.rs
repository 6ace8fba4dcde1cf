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

use html::escape;

/// Vendored plotting library: see `vendor/uplot/README.md`.
const UPLOT_JS: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
/// Licence of the library, to be included in every copy.
const UPLOT_LICENSE: &str = include_str!("../vendor/uplot/LICENSE");
const UPLOT_CSS: &str = include_str!("../vendor/uplot/uPlot.min.css");
const PAGE_JS: &str = include_str!("page/page.js");
const PAGE_CSS: &str = include_str!("page/page.css");

const THEME_JS: &str = "try{const t=localStorage.getItem('faircast-theme');\
    if(t)document.documentElement.dataset.theme=t}catch{}";

struct Page<'a> {
    title: &'a str,
    kind: &'a str,
    navigation: &'a [(String, String)],
    main: &'a str,
    footer: &'a str,
    data: &'a str,
}

impl Page<'_> {
    fn render(&self) -> String {
        let links: String = self
            .navigation
            .iter()
            .map(|(anchor, label)| format!("<a href=\"#{}\">{}</a>", escape(anchor), escape(label)))
            .collect();
        let (title, kind) = (escape(self.title), escape(self.kind));
        let (main, footer) = (self.main, self.footer);
        // Inside a script element only "</script" and "<!--" have a meaning to the HTML parser.
        let data = self.data.replace('<', "\\u003c");
        // The policy proves that the page makes no network request.
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} – faircast</title>\n<link rel=\"icon\" href=\"data:,\">\n\
             <style>{UPLOT_CSS}\n{PAGE_CSS}</style>\n<script>{THEME_JS}</script>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the content</a>\n\
             <div class=\"top\"><div class=\"wrap\"><div class=\"brand\">faircast <span>{kind}</span>\
             </div><nav aria-label=\"Sections\">{links}</nav>\
             <button type=\"button\" id=\"theme\" hidden>Dark</button></div></div>\n\
             <main class=\"wrap\" id=\"main\">\n{main}</main>\n\
             <footer><div class=\"wrap\">{footer}<p>Plots by uPlot 1.6.32 (MIT licence).</p></div></footer>\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>/*! uPlot 1.6.32\n{UPLOT_LICENSE}*/\n{UPLOT_JS}</script>\n<script>{PAGE_JS}</script>\n</body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests;
