package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Membership is an agent among those of its node: a file whose name says when it joined, and on
// which it holds a lock as long as it lives. The kernel drops the lock with the process, however
// that ends.
type Membership struct {
	run  RunDir
	dir  string
	name string

	mu   sync.Mutex // of file, within the process
	file *os.File
}

// Join announces an agent. From now on the others are superseded.
func (r RunDir) Join() (*Membership, error) {
	m := &Membership{run: r, dir: r.agents()}
	if err := m.join(); err != nil {
		return nil, fmt.Errorf("join agents in %s: %w", m.dir, unnamed(err))
	}
	return m, nil
}

func (m *Membership) join() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	return withLock(m.dir, func(names []string) error {
		m.name = joined(names) + "-" + strings.ToLower(rand.Text()[:8])
		return m.announce()
	})
}

// joined is the time, or later than all who joined, if the clock was set back since.
func joined(names []string) string {
	now := time.Now().UnixNano()
	for _, name := range names {
		then, _, _ := strings.Cut(name, "-")
		if n, err := strconv.ParseInt(then, 10, 64); err == nil {
			now = max(now, n+1)
		}
	}
	return fmt.Sprintf("%019d", now)
}

// withLock calls do with the members' names while no other agent looks at them: a file that is not
// locked yet would look as if its agent were dead.
func withLock(agents string, do func(names []string) error) error {
	dir, err := os.Open(agents)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := Lock(dir); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	return do(names)
}

func (m *Membership) announce() error {
	f, err := os.OpenFile(filepath.Join(m.dir, m.name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if held, err := tryLock(f); err != nil || !held {
		f.Close()
		return errors.Join(err, errors.New("another process has the lock of our file"))
	}
	if m.file != nil {
		m.file.Close()
	}
	m.file = f
	return nil
}

// Superseded reports whether an agent lives that joined later: then it is the one that writes. What
// dead ones left is removed. If somebody removed our file, it is made again: without it an older
// agent would not know of us.
func (m *Membership) Superseded() (bool, error) {
	var newer bool
	err := m.look(func(found bool) error {
		newer = found
		return nil
	})
	return newer, err
}

// look calls do, as long as nobody can join, with whether an agent lives that joined later.
func (m *Membership) look(do func(newer bool) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var done error
	err := os.MkdirAll(m.dir, 0o700)
	if err == nil {
		err = withLock(m.dir, func(names []string) error {
			newer, err := m.newer(names)
			if err == nil {
				done = do(newer)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("look for other agents in %s: %w", m.dir, unnamed(err))
	}
	return done
}

// ErrSuperseded says that another agent is to write, or that none is.
var ErrSuperseded = errors.New("another agent is in charge, or the node was taken out")

// Lead does what the agent in charge alone may do. Until that has returned no other agent joins,
// and no uninstallation removes what it writes. If an agent lives that joined later, or if an
// uninstallation has begun, it is not done, and the error is ErrSuperseded.
func (m *Membership) Lead(do func() error) error {
	return m.look(func(newer bool) error {
		switch _, marked, err := m.run.Marked(); {
		case err != nil:
			return err
		case newer || marked:
			return ErrSuperseded
		}
		return do()
	})
}

func (m *Membership) newer(names []string) (bool, error) {
	if !m.there() {
		if err := m.announce(); err != nil {
			return false, err
		}
	}
	newer := false
	for _, name := range names {
		if name == m.name {
			continue
		}
		alive, err := m.alive(name)
		if err != nil {
			return false, err
		}
		newer = newer || alive && name > m.name
	}
	return newer, nil
}

// there reports whether our file is the one under our name.
func (m *Membership) there() bool {
	ours, err := m.file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Lstat(filepath.Join(m.dir, m.name))
	return err == nil && os.SameFile(ours, found)
}

// alive reports whether a member still is one, and removes its file if not.
func (m *Membership) alive(name string) (bool, error) {
	path := filepath.Join(m.dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	dead, err := tryLock(f)
	if dead {
		os.Remove(path)
	}
	return !dead, err
}

// Leave takes the announcement back.
func (m *Membership) Leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.there() {
		os.Remove(filepath.Join(m.dir, m.name))
	}
	m.file.Close()
}
