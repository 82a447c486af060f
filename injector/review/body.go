package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBody has room for any pod: the API server takes objects of 3 MiB at most, etcd keeps half
	// of that.
	maxBody = 4 << 20
	// smallBody is read without asking: the server bounds the connections. Most reviews are
	// smaller, so that no large one that is sent slowly holds them up.
	smallBody = 32 << 10
	// readBudget bounds the large bodies that are being read, all together.
	readBudget = 4 * maxBody
	// workBudget bounds the bodies that are being answered, all together: as a tree, and as the
	// copies that are made of it, a body takes many times its size.
	workBudget = maxBody
	// leastWork is what each counts for at least, so that few are answered at once: more would
	// take memory, and end no sooner. The others wait in the order in which they came.
	leastWork = workBudget / 8
	// valueWork is what a JSON value counts for at least: as a part of a tree it takes hundreds of
	// bytes, be it two in the body. A pod has more than this for each, names and all.
	valueWork = 32
	maxValues = workBudget / valueWork
	// smallAtATime of those that count for smallBody at most are answered beside the others, which
	// take up to a second each: whoever sends many of these does not hold up the usual pods.
	smallAtATime = 8

	// The API server waits 10 seconds unless the webhook configuration says otherwise, and 30 at
	// most.
	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second
)

// budget is the memory that requests in flight share, in bytes of their bodies.
type budget struct{ read, work, small *semaphore.Weighted }

func newBudget() budget {
	return budget{read: semaphore.NewWeighted(readBudget), work: semaphore.NewWeighted(workBudget),
		small: semaphore.NewWeighted(smallAtATime)}
}

// room is where a body is to be answered, and what it takes of it.
func (b budget) room(size, values int) (of *semaphore.Weighted, work int64) {
	work = max(int64(size), int64(values)*valueWork)
	if work <= smallBody {
		return b.small, 1
	}
	return b.work, max(work, leastWork)
}

// timeout is how long the client of a request waits: the API server says so in its query.
func timeout(r *http.Request) time.Duration {
	asked, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || asked <= 0 {
		return defaultTimeout
	}
	return min(asked, maxTimeout)
}

// take returns the body of a request, once there is room for it, and what gives the room back.
func (b budget) take(ctx context.Context, w http.ResponseWriter, r *http.Request) (
	body []byte, release func(), wrong *answer) {
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close") // what else is sent is not read
		return nil, nil, tooLarge()
	}
	in := http.MaxBytesReader(w, r.Body, maxBody)
	var read bytes.Buffer
	read.Grow(int(min(max(r.ContentLength, 0), smallBody)) + bytes.MinRead)
	weight := int64(0)
	_, err := io.CopyN(&read, in, smallBody)
	if err == nil { // it may go on
		weight = int64(maxBody)
		if r.ContentLength > 0 {
			weight = r.ContentLength
		}
		if b.read.Acquire(ctx, weight) != nil {
			return nil, nil, noRoom()
		}
		if r.ContentLength > 0 {
			read.Grow(int(weight)) // else it would grow to twice as much
		}
		_, err = read.ReadFrom(in)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.read.Release(weight)
		return nil, nil, unread(err)
	}
	count := values(read.Bytes())
	if count > maxValues {
		b.read.Release(weight)
		return nil, nil, tooMany(count)
	}
	room, work := b.room(read.Len(), count)
	if room.Acquire(ctx, work) != nil {
		b.read.Release(weight)
		return nil, nil, noRoom()
	}
	return read.Bytes(), func() { room.Release(work); b.read.Release(weight) }, nil
}

func tooLarge() *answer {
	return refuse(http.StatusRequestEntityTooLarge, badSize, fmt.Sprintf(
		"read review: it has more than %d bytes, and no pod that the API server takes does",
		maxBody))
}

func tooMany(values int) *answer {
	return refuse(http.StatusRequestEntityTooLarge, badSize, fmt.Sprintf(
		"read review: it has %d lists, objects and items of them, want at most %d: make the pod "+
			"smaller", values, maxValues))
}

// values returns how many values a JSON text has, more or less: the lists and objects, and what
// follows a comma.
func values(text []byte) (count int) {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++ // what is escaped does not end it
		case !inString && (c == '{' || c == '[' || c == ','):
			count++
		}
	}
	return count
}

func noRoom() *answer {
	return fail(http.StatusServiceUnavailable, busy, "sidecar-cni-injector is busy with other "+
		"requests: try again, or give it more replicas if it is so for long")
}

// unread says why a body did not arrive.
func unread(err error) *answer {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, badBody,
			"read review: it did not arrive in time")
	}
	return refuse(http.StatusBadRequest, badBody, "read review: it broke off")
}
