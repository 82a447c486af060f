package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// logs returns what the files of a directory hold, without the lock.
func logs(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log*"))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) != ".lock" {
			content[filepath.Base(name)] = string(data)
		}
	}
	return content
}

func writeTo(t *testing.T, f logFile, line string) {
	t.Helper()
	if n, err := f.Write([]byte(line)); err != nil || n != len(line) {
		t.Errorf("%q: %d bytes, %v", line, n, err)
	}
}

func TestTheLogFileKeepsThreeOlderOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := logFile{path: filepath.Join(dir, "log"), limit: 6}
	for _, step := range []struct {
		line string
		want map[string]string
	}{
		{"a\n", map[string]string{"log": "a\n"}},
		{"bcd\n", map[string]string{"log": "a\nbcd\n"}}, // which is the limit
		{"e\n", map[string]string{"log": "e\n", "log.1": "a\nbcd\n"}},
		{"too long\n", map[string]string{"log": "too long\n", "log.1": "e\n", "log.2": "a\nbcd\n"}},
		{"f\n", map[string]string{
			"log": "f\n", "log.1": "too long\n", "log.2": "e\n", "log.3": "a\nbcd\n",
		}},
		{"ghijk\n", map[string]string{
			"log": "ghijk\n", "log.1": "f\n", "log.2": "too long\n", "log.3": "e\n",
		}},
	} {
		writeTo(t, f, step.line)
		if diff := cmp.Diff(step.want, logs(t, dir)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", step.line, diff)
		}
	}
}

func TestALogLineTooLongForAnyFileMakesOne(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "too")
	writeTo(t, logFile{path: filepath.Join(dir, "log"), limit: 1}, "abc\n")
	if err := os.Truncate(filepath.Join(dir, "log"), 0); err != nil {
		t.Fatal(err)
	}
	writeTo(t, logFile{path: filepath.Join(dir, "log"), limit: 1}, "def\n")
	if diff := cmp.Diff(map[string]string{"log": "def\n"}, logs(t, dir)); diff != "" {
		t.Errorf("an empty file was rotated (-want +got):\n%s", diff)
	}
}

func TestWhoDoesNotGetTheLockOfTheLogOnlyAppends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := logFile{path: filepath.Join(dir, "log"), limit: 2}
	writeTo(t, f, "a\n")
	lock, err := os.Create(f.path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "b\n")
	if diff := cmp.Diff(map[string]string{"log": "a\nb\n"}, logs(t, dir)); diff != "" {
		t.Errorf("while another process rotates (-want +got):\n%s", diff)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "c\n")
	want := map[string]string{"log": "c\n", "log.1": "a\nb\n"}
	if diff := cmp.Diff(want, logs(t, dir)); diff != "" {
		t.Errorf("after that (-want +got):\n%s", diff)
	}
}

// The file that is full when a writer looks may be rotated by another before it has the lock: the
// writers of a round share one full file, and one of them rotates.
func TestManyWritersRotateAFullLogOnce(t *testing.T) {
	t.Parallel()
	const writers, limit = 40, 1 << 20
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		dir := t.TempDir()
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, limit); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				writeTo(t, logFile{path: path, limit: limit}, fmt.Sprintf("line %d.\n", i))
			})
		}
		all.Wait()
		content := logs(t, dir)
		if len(content) != 2 {
			t.Errorf("round %d: %d files, want the new one and the full one", round, len(content))
		}
		for i := range writers {
			line := fmt.Sprintf("line %d.\n", i)
			n := strings.Count(content["log"], line) + strings.Count(content["log.1"], line)
			if n != 1 {
				t.Errorf("round %d: line %d is there %d times", round, i, n)
			}
		}
	}
}

func TestALineInARemovedFileIsNoticed(t *testing.T) {
	t.Parallel()
	file, err := logFile{path: filepath.Join(t.TempDir(), "log")}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if kept, err := writeLine(file, []byte("a\n")); err != nil || !kept {
		t.Errorf("a file with a name: kept %t, %v", kept, err)
	}
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	if kept, err := writeLine(file, []byte("b\n")); err != nil || kept {
		t.Errorf("a removed file: kept %t, %v", kept, err)
	}
}

func TestTheModeOfTheLog(t *testing.T) {
	t.Parallel()
	f := logFile{path: filepath.Join(t.TempDir(), "log"), limit: 1}
	mode := func() fs.FileMode {
		info, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	writeTo(t, f, "a\n")
	if got := mode(); got != 0o600 {
		t.Errorf("of the first file: %s", got)
	}
	if err := os.Chmod(f.path, 0o644); err != nil {
		t.Fatal(err)
	}
	writeTo(t, f, "b\n")
	if got := mode(); got != 0o644 {
		t.Errorf("after an administrator made it readable, and a rotation: %s", got)
	}
}

// What cannot be rotated is still written to, and what cannot be written is an error.
func TestErrorsOfTheLogFile(t *testing.T) {
	t.Parallel()
	f := logFile{path: filepath.Join(t.TempDir(), "log"), limit: 2}
	writeTo(t, f, "a\n")
	if err := os.MkdirAll(f.path+".3/full", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path+".2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := f.Write([]byte("b\n"))
	if n != 2 || err == nil || !strings.Contains(err.Error(), f.path+".3") {
		t.Errorf("no place for the older file: %d bytes, %v", n, err)
	}
	if data, err := os.ReadFile(f.path); err != nil || string(data) != "a\nb\n" {
		t.Errorf("the file has %q, %v", data, err)
	}
	f.path = t.TempDir()
	if n, err := f.Write([]byte("c\n")); n != 0 || err == nil {
		t.Errorf("a directory: %d bytes, %v", n, err)
	}
}
