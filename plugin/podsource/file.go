package podsource

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// A file is what the agent has written down about a pod.
type file struct {
	pod   *kubepod.Pod // nil if there is no file that can be believed
	fresh bool         // an agent vouches for it at this moment
	why   error        // it was passed over; nil if there is none
}

// readFile looks for a pod's file. Whatever is wrong with it is as if there was none. It says
// whether the files are fresh as of before it read this one: the other way round, an agent that
// takes over in between would vouch for what it has replaced.
func (s Sources) readFile(ref Ref) file {
	if s.PodFiles == "" || !podfile.ValidName(ref.UID) {
		return file{}
	}
	run, err := openDir(unix.AT_FDCWD, s.PodFiles)
	if err != nil {
		return passOver(s.PodFiles, err)
	}
	defer unix.Close(run)
	pods := podfile.Dir(s.PodFiles)
	dir, err := openDir(run, podfile.DirName)
	if err != nil {
		return passOver(pods, err)
	}
	defer unix.Close(dir)
	fresh := isFresh(dir)
	data, err := readAt(dir, ref.UID)
	if err != nil {
		return passOver(pods+"/"+ref.UID, err)
	}
	pod, err := ref.takeFile(data)
	if err != nil {
		return passOver(pods+"/"+ref.UID, err)
	}
	return file{pod: pod, fresh: fresh}
}

func passOver(path string, err error) file {
	if errors.Is(err, unix.ENOENT) {
		return file{}
	}
	return file{why: fmt.Errorf("%s: %w", path, err)}
}

// takeFile reads a pod's file. A mirror pod, whose uid is another one, has none.
func (r Ref) takeFile(data []byte) (*kubepod.Pod, error) {
	body, err := podfile.Decode(data)
	if err != nil {
		return nil, err
	}
	a := r.take(body)
	if a.err == nil && a.pod.Metadata.UID != r.UID {
		return nil, r.otherUID(a.pod.Metadata.UID)
	}
	return a.pod, a.err
}

// isFresh reports whether an agent holds the lock on the file that says so, and when it said so
// last. A lock ends with its holder, however that ends; the age is for a holder that hangs.
func isFresh(dir int) bool {
	fd, size, err := openAt(dir, podfile.FreshFile)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return false
	}
	data, err := readAll(fd, size)
	if err != nil {
		return false
	}
	said, err := podfile.DecodeTime(data)
	if err != nil {
		return false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return false
	}
	age := time.Duration(now.Nano()) - said
	return age >= 0 && age <= podfile.FreshFor
}

var (
	errOpenToOthers = errors.New("others than root may write to it")
	errNoFile       = errors.New("it is no file")
	errTooLarge     = fmt.Errorf("it is larger than %d bytes", podfile.MaxFile)
)

// openDir opens a directory, not a link to one, in which root alone makes files.
func openDir(at int, name string) (fd int, err error) {
	fd, _, err = open(at, name, unix.O_DIRECTORY)
	return fd, err
}

// openAt opens a file that is root's, and returns its size. O_NONBLOCK is for a FIFO, which would
// wait for its other end.
func openAt(dir int, name string) (fd int, size int64, err error) {
	fd, st, err := open(dir, name, unix.O_NONBLOCK)
	if err != nil {
		return -1, 0, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errNoFile
	case st.Size > podfile.MaxFile:
		err = errTooLarge
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// open judges what it has opened, and not what has that name a moment before or after.
func open(at int, name string, flags int) (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return -1, st, err
	}
	const writableByOthers = unix.S_IWGRP | unix.S_IWOTH
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Uid != 0 || st.Mode&writableByOthers != 0) {
		err = errOpenToOthers
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

func readAt(dir int, name string) ([]byte, error) {
	fd, size, err := openAt(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readAll(fd, size)
}

// readAll reads a file of a size, in one call: files of the agent do not change under their reader,
// and one that does is torn.
func readAll(fd int, size int64) ([]byte, error) {
	data := make([]byte, size)
	n, err := unix.Read(fd, data)
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}
