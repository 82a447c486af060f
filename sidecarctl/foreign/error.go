package foreign

// Error is one whose text is one line, whatever its cause holds.
type Error struct {
	Text  string // fit for a line
	Cause error  // of whom the text is
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Cause }
