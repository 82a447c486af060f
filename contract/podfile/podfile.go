// Package podfile is the form in which the agent in charge writes down on its node what it knows of
// a meshed pod, and the plugin reads it (docs/agent-protocol.md): a head with the number of the
// form and the length, and the pod as the agent's socket would hand it out.
//
//	/run/sidecar-cni/pods/5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11    a pod, named by its uid
//	/run/sidecar-cni/pods/.fresh                                  when all of them were true
//
// Be aware: agent and plugin of two versions meet on a node. Form changes with everything that
// comes to decide about a pod, so that a file that leaves it out is not believed.
package podfile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Form is the number of the form. A plugin reads files of its own alone.
const Form = 1

const (
	// MaxFile is how large a file may be, in bytes.
	MaxFile = 64 << 10
	// MaxAll is how large all files of a node may be together.
	MaxAll = 4 << 20
	// DirName is the name of their directory.
	DirName = "pods"
	// FreshFile is the file that says when the others were true.
	FreshFile = ".fresh"
	// FreshEvery is how often the agent in charge says so.
	FreshEvery = 10 * time.Second
	// FreshFor is for how long it holds, of an agent that hangs.
	FreshFor = 30 * time.Second
)

// Dir is where the files are, below the agents' run directory.
func Dir(run string) string { return filepath.Join(run, DirName) }

// longestName is more than the uid of any pod takes.
const longestName = 64

// ValidName reports whether a uid can be the name of a file: 1 to 64 letters, digits and hyphens.
// No such name leads out of the directory, or is that of FreshFile.
func ValidName(uid string) bool {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}
	return uid != "" && len(uid) <= longestName && !strings.ContainsFunc(uid, other)
}

// Encode returns the file of a pod in JSON, the form of the agent's answer.
func Encode(pod []byte) []byte { return append(head(len(pod)), pod...) }

// head is the first line of a file. Package fmt would take the plugin's process as long to get
// ready as all that it asks of the kernel for a file.
func head(length int) []byte {
	line := strconv.AppendInt([]byte("sidecar-cni pod "), Form, 10)
	return append(strconv.AppendInt(append(line, ' '), int64(length), 10), '\n')
}

// Decode returns the pod of a file. An error says why it is not believed.
func Decode(file []byte) (pod []byte, err error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(file), MaxFile)
	}
	line, pod, _ := bytes.Cut(file, []byte{'\n'})
	if want := head(len(pod)); !bytes.HasPrefix(file, want) {
		return nil, fmt.Errorf("it begins with %.60q, want %q", line, want)
	}
	return pod, nil
}

// timeLength is that of every FreshFile: the digits of the largest int64, and a newline.
const timeLength = 20

// EncodeTime returns the content of FreshFile for a time since the node's boot (CLOCK_BOOTTIME).
func EncodeTime(sinceBoot time.Duration) []byte {
	return fmt.Appendf(nil, "%0*d\n", timeLength-1, sinceBoot.Nanoseconds())
}

// DecodeTime reads it.
func DecodeTime(file []byte) (time.Duration, error) {
	digits, whole := strings.CutSuffix(string(file), "\n")
	nanoseconds, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !whole || len(file) != timeLength {
		return 0, fmt.Errorf("%.30q is no time since boot", file)
	}
	return time.Duration(nanoseconds), nil
}
