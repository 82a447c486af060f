package render

import "text/template"

// These three are all that is taken of text/template. Nothing that executes a template may be: it
// finds methods by their names at run time, and so the linker would keep every method of every type
// that the program has, which is 6 MB of it.

func escapeHTML(values ...any) string { return template.HTMLEscaper(values...) }

func escapeJS(values ...any) string { return template.JSEscaper(values...) }

func escapeQuery(values ...any) string { return template.URLQueryEscaper(values...) }
