package injector_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// score is what a process has done since its last reset.
type score struct {
	took     []time.Duration // one for each answer
	loaded   time.Duration   // how long it was under load
	cpu      time.Duration   // that the process took
	mistakes []error         // one for each request that was not answered
}

// rate is in requests a second.
func (s score) rate() float64 { return float64(len(s.took)) / s.loaded.Seconds() }

// each is the CPU time of a request, which other programs change less than how long it takes.
func (s score) each() time.Duration {
	return s.cpu / time.Duration(len(s.took)+len(s.mistakes))
}

// webhook is a process that is asked, and what its answers took.
type webhook struct {
	address string
	pid     int
	client  *http.Client
	score   score
}

// newWebhook keeps connections as the API server does.
func newWebhook(address string, pid int, trusted *x509.CertPool) *webhook {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}},
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
	}
	return &webhook{address: address, pid: pid,
		client: &http.Client{Transport: transport, Timeout: time.Minute}}
}

func (w *webhook) ask(body []byte) ([]byte, error) {
	answer, err := w.client.Post("https://"+w.address+"/inject?timeout=5s", "application/json",
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, data)
	}
	return data, err
}

// check waits until the process answers, and has it answer as it should.
func (w *webhook) check(b *testing.B, body []byte, patches bool) {
	b.Helper()
	var said admissionv1.AdmissionReview
	var data []byte
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if data, err = w.ask(body); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err == nil {
		err = json.Unmarshal(data, &said)
	}
	if err != nil || said.Response == nil || !said.Response.Allowed ||
		(said.Response.Patch != nil) != patches {
		b.Fatalf("%v: %s: want it allowed, and patched: %t", err, data, patches)
	}
}

// load asks at a constant rate, whether or not what was asked before is answered. What an answer
// takes counts from when it was due to be asked for, so that no delay hides another.
func (w *webhook) load(b *testing.B, body []byte) {
	b.Helper()
	const requests = int(rate * roundTime / time.Second)
	took := make([]time.Duration, requests)
	mistakes := make([]error, requests)
	var all sync.WaitGroup
	before, began := w.ticks(b), time.Now()
	for i := range requests {
		due := began.Add(time.Duration(i) * time.Second / rate)
		time.Sleep(time.Until(due))
		all.Go(func() {
			_, mistakes[i] = w.ask(body)
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	w.score.loaded += time.Since(began)
	w.score.cpu += w.ticks(b) - before
	for i, err := range mistakes {
		if err != nil {
			w.score.mistakes = append(w.score.mistakes, err)
		} else {
			w.score.took = append(w.score.took, took[i])
		}
	}
}

// ticks is the CPU time of the process, in hundredths of a second.
func (w *webhook) ticks(b *testing.B) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory reads what the kernel counts as resident: now, and at most.
func (w *webhook) memory(b *testing.B) (now, most int64) {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		var kib int64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			continue
		}
		switch key {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			most = kib << 10
		}
	}
	return now, most
}

// freeAddress is one on loopback that nobody listens at.
func freeAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
