//! What the hub serves to browsers: the page that turns a tab into an agent. `web/` holds its sources; its `dist` is kept
//! in the repository, so that nobody needs Node to build TapML.

/// A page by its path: its type and its bytes.
pub type Page = (&'static str, &'static str, &'static [u8]);

/// Pages by their paths.
pub const PAGES: &[Page] = &[
    ("/", "text/html", include_bytes!("../../../../web/dist/index.html")),
    ("/style.css", "text/css", include_bytes!("../../../../web/dist/style.css")),
    ("/page.js", "text/javascript", include_bytes!("../../../../web/dist/page.js")),
    ("/agent.js", "text/javascript", include_bytes!("../../../../web/dist/agent.js")),
    // What starts the same agent under Node.
    ("/node-agent.mjs", "text/javascript", include_bytes!("../../../../web/dist/node-agent.mjs")),
];
