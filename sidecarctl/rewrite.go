package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// rewriteOptions are the flags that all commands have that write a manifest anew.
type rewriteOptions struct {
	file   string
	output string
}

// A rewriter makes a manifest of another one. name is the file's, for messages. The notes say what
// became of the pods, and are shown once the manifest is written.
type rewriter func(ctx context.Context, name string, data []byte) (out manifest.Output,
	notes []string, err error)

// rewriteCommand is a verb about the manifest of a file.
func (e env) rewriteCommand(c *cobra.Command, rewrite rewriter) *cobra.Command {
	var o rewriteOptions
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("%q stands alone: want the manifest by --filename", args[0])
		}
		return nil
	}
	f := c.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "the manifest, in YAML or JSON; - is standard input")
	f.StringVarP(&o.output, "output", "o", "",
		"the file that is written, whole or not at all; it may be the one that is read")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.file == "" {
			return usagef("--filename is not set: want a manifest, or - for standard input")
		}
		return e.rewriteUntil(c.Context(), o, rewrite)
	}
	return c
}

// rewriteUntil writes the manifest, unless ctx ends before it is made: neither reading it nor the
// templates look at ctx.
func (e env) rewriteUntil(ctx context.Context, o rewriteOptions, rewrite rewriter) error {
	made := make(chan rewritten, 1)
	go func() { made <- e.rewrite(ctx, o.file, rewrite) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-made:
		if r.err != nil {
			return r.err
		}
		for _, warning := range r.out.Warnings {
			e.warn(warning)
		}
		if err := e.write(o.output, r.out.Data); err != nil {
			return err
		}
		for _, note := range r.notes {
			e.note("%s", note)
		}
		return nil
	}
}

// rewritten is a manifest that is made and not yet written, or why it cannot be.
type rewritten struct {
	out   manifest.Output
	notes []string
	err   error
}

func (e env) rewrite(ctx context.Context, file string, rewrite rewriter) rewritten {
	name, data, err := e.manifest(file)
	if err != nil {
		return rewritten{err: err}
	}
	out, notes, err := rewrite(ctx, name, data)
	return rewritten{out, notes, err}
}

func (e env) write(path string, data []byte) error {
	// By its name, standard output may be a regular file, which is not to be replaced: with >>
	// there is more in it.
	if path == "" || path == "-" || path == "/dev/stdout" {
		_, err := e.stdout.Write(data)
		return err
	}
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

// note says on standard error what became of a pod.
func (e env) note(format string, args ...any) {
	fmt.Fprintf(e.stderr, "sidecarctl: %s\n", view.Clean(fmt.Sprintf(format, args...)))
}

func (e env) warn(warning string) { e.note("warning: %s", strings.ReplaceAll(warning, "\n", "; ")) }

// manifest reads the file that the command line names, and how messages call it.
func (e env) manifest(path string) (name string, data []byte, err error) {
	if path == "-" {
		data, err = bounded.Read(e.stdin, bounded.Manifest)
		err = tooLarge(err)
		name = "standard input"
	} else {
		data, err = readFile(path)
		name = path
	}
	if err != nil {
		return "", nil, fmt.Errorf("read %q: %w", name, err)
	}
	return name, data, nil
}

func readFile(path string) ([]byte, error) {
	data, err := bounded.Named(path, bounded.Manifest)
	return data, tooLarge(bounded.Reason(err))
}

// tooLarge adds to an error about a manifest's size what helps.
func tooLarge(err error) error {
	if _, large := errors.AsType[bounded.TooLarge](err); large {
		return fmt.Errorf("%w; write it as several files", err)
	}
	return err
}

// replaceFile puts data in place of a file's: a reader sees the old text or the new one, and a
// link stays a link. What is no regular file, such as a named pipe, is written to.
func replaceFile(path string, data []byte) error {
	mode, exists := fs.FileMode(0o666), false
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return os.WriteFile(path, data, 0)
		}
		mode, exists = info.Mode().Perm(), true
	}
	path, err := destination(path)
	if err != nil {
		return bounded.Reason(err)
	}
	// In containers, process ids repeat: by chance alone no killed run left a file of this name.
	temporary := fmt.Sprintf("%s.%s.tmp", path, rand.Text()[:8])
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return bounded.Reason(err)
	}
	defer os.Remove(temporary) // of no effect once it is renamed
	_, err = file.Write(data)
	if err == nil && exists {
		err = file.Chmod(mode) // the umask has taken bits that the old file had
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return bounded.Reason(err)
	}
	return os.Rename(temporary, path)
}

// maxLinks is how many links may be behind one another: as many as Linux follows.
const maxLinks = 40

// destination follows links, also to a file that is not there yet.
func destination(path string) (string, error) {
	for range maxLinks {
		to := linkAt(path)
		switch {
		case to == "":
			return path, nil
		case filepath.IsAbs(to):
			path = to
			continue
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(folder, to)
	}
	return "", errors.New("too many links behind one another")
}

// linkAt returns where a link points; "" if path is none.
func linkAt(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return to
}
