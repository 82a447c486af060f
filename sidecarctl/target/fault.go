package target

// fault is an error whose text is one line whatever its cause holds.
type fault struct {
	text  string
	cause error
}

func (f *fault) Error() string { return f.text }

func (f *fault) Unwrap() error { return f.cause }
