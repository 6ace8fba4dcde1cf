//! Live page of a daemon, from files embedded in the program.

use hyper::StatusCode;

use crate::live::metrics::Page;

pub(super) fn file(path: &str) -> Option<Page> {
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/page.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        _ => return None,
    };
    Some((StatusCode::OK, kind, text.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::live::metrics::serve_pages;

    fn ask(at: SocketAddr, request: &str) -> (String, String) {
        ask_host(at, request, &at.to_string())
    }

    fn ask_host(at: SocketAddr, request: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(at).expect("a connection");
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_lowercase(), body.to_string())
    }

    #[test]
    fn files_have_their_types_and_forbid_foreign_content() {
        let runtime = crate::live::runtime().unwrap_or_else(|error| panic!("{error}"));
        let asked = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let at = listener.local_addr().expect("an address");
            serve_pages(listener, |path| std::future::ready(file(&path)));
            tokio::task::spawn_blocking(move || ask_for_files(at)).await
        });
        asked.expect("all answers are right");
    }

    fn ask_for_files(at: SocketAddr) {
        for (path, kind, text) in [
            ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
            ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
            ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
        ] {
            let (head, body) = ask(at, &format!("GET {path}"));
            assert!(head.starts_with("http/1.1 200 ") && body == text, "{path}: {head}");
            for line in [
                &format!("content-type: {kind}"),
                "x-content-type-options: nosniff",
                "cache-control: no-store",
                "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                 connect-src 'self'; img-src data:; ",
            ] {
                assert!(head.contains(line), "{path}: {line}: {head}");
            }
            let (head, _) = ask(at, &format!("POST {path}"));
            assert!(head.starts_with("http/1.1 405 "), "{path}: {head}");
        }
        for (host, status) in [
            ("localhost", 200),
            ("LOCALHOST:80", 200),
            ("[::1]:80", 200),
            ("evil.example", 421),
            ("localhost.evil.example:80", 421),
            ("", 421),
        ] {
            let (head, _) = ask_host(at, "GET /", host);
            assert!(head.starts_with(&format!("http/1.1 {status} ")), "{host}: {head}");
        }
        for path in ["/page.html", "/page/page.js", "//page.js", "/../page.css", "/page.js/"] {
            let (head, _) = ask(at, &format!("GET {path}"));
            assert!(head.starts_with("http/1.1 404 "), "{path}: {head}");
        }
    }

    #[test]
    fn markup_and_script_keep_the_policy() {
        let (html, script) = (include_str!("page/page.html"), include_str!("page/page.js"));
        for word in [" on", "style=", "<style", "//"] {
            assert!(!html.contains(word), "page.html: {word}");
        }
        for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "http:"]
        {
            assert!(!script.contains(word), "page.js: {word}");
        }
    }
}
