//! From traces to metrics, tables, JSON and HTML with plots.
