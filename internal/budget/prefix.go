package budget

// Prefix is a writer that keeps the first Most bytes of what is written to it, as a program
// that somebody else controls says without end. It never fails: Over says that there was
// more.
type Prefix struct {
	Most int
	Text []byte
	Over bool
}

// Write implements io.Writer.
func (p *Prefix) Write(b []byte) (int, error) {
	keep := min(len(b), max(p.Most-len(p.Text), 0))
	p.Text = append(p.Text, b[:keep]...)
	p.Over = p.Over || keep < len(b)
	return len(b), nil
}
