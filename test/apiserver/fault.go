package apiserver

import (
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Say answers with the Status of err, whatever is asked.
func Say(err *apierrors.StatusError) Fault {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			sendError(w, r, err)
		})
	}
}

// SayText answers in plain text, as priority and fairness and load balancers do. retryAfter is left
// out if it is 0.
func SayText(status, retryAfter int, text string) Fault {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if retryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			}
			http.Error(w, text, status)
		})
	}
}

// Hang never answers.
func Hang(http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// Only behind the end of the body does the server notice that its client hangs up.
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	})
}

// Slow answers right, but late.
func Slow(late time.Duration) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			timer := time.NewTimer(late)
			defer timer.Stop()
			select {
			case <-timer.C:
				next.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		})
	}
}

// Reset breaks the connection in the middle of an answer.
func Reset(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Length", "4096")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
}

// First is a fault of the first n requests only.
func First(n int, fault Fault) Fault {
	return func(next http.Handler) http.Handler {
		if n--; n >= 0 {
			return fault(next)
		}
		return next
	}
}

// Cut breaks the connection instead of an answer.
func Cut(http.Handler) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		panic(http.ErrAbortHandler)
	})
}
