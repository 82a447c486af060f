package validate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// timeout bounds all of it. Within a pod a call takes no time; one that is lost takes all of it.
const timeout = 5 * time.Second

const advice = "The CNI plugin sidecar-cni was not in effect on the pod's node when the pod was " +
	"created, or its configuration leaves the pod out. See what `sidecarctl node` says of the " +
	"node, or `sidecarctl verify` of the pod, and mend it; then delete the pod, so that it is " +
	"created anew."

// Run tries the calls. An error says which went elsewhere, and what to do.
func Run(ctx context.Context, o Options) error {
	if len(o.Calls) == 0 {
		o.Calls = usualCalls()
	}
	if err := o.check(); err != nil {
		return err
	}
	here, err := findPod()
	if err != nil {
		return err
	}
	calls := here.choose(o.Calls)
	if len(calls) == 0 {
		return errors.New("find an address of the pod: it has none but those of lo, and no call " +
			"there could show that it is redirected: have the node's network plugin give it one")
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	proxy, err := listen(within, o.Inbound, calls)
	if err != nil {
		return err
	}
	defer proxy.close()
	wrong := proxy.try(within, calls)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("call the pod itself: %w", context.Cause(ctx))
	case len(wrong) > 0 && initFollows():
		o.say("istio-init, which another webhook has given back to this pod, has yet to " +
			"redirect it")
		return nil
	case len(wrong) > 0:
		return fmt.Errorf("%w: %s. %s", ErrNotRedirected, strings.Join(wrong, "; "), advice)
	}
	o.report(calls)
	return nil
}

// initFollows reports whether the plugin has found that istio-init redirects the pod, and runs
// after this.
func initFollows() bool {
	tag, err := os.ReadFile(names.LoopbackTag)
	return err == nil && strings.TrimSpace(string(tag)) == names.InitRestored
}

// report says what went well.
func (o Options) report(calls []Call) {
	words := make([]string, len(calls))
	for i, c := range calls {
		words[i] = c.words()
	}
	o.say(fmt.Sprintf("redirected: %s arrived at port %d", strings.Join(words, " and "), o.Inbound))
}

// say writes a line. A log that cannot be written keeps no pod from its start.
func (o Options) say(line string) {
	if o.Out != nil {
		_, _ = fmt.Fprintln(o.Out, line)
	}
}

func (c Call) words() string { return fmt.Sprintf("a call from %s to %s", c.From, c.To) }

// try makes the calls, all at once, and says of each that went elsewhere where it went.
func (p *proxy) try(ctx context.Context, calls []Call) (wrong []string) {
	causes := make([]string, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { causes[i] = p.call(ctx, c) })
	}
	all.Wait()
	for i, cause := range causes {
		if cause != "" {
			wrong = append(wrong, fmt.Sprintf("%s did not arrive at port %d: %s", calls[i].words(),
				p.port, cause))
		}
	}
	return wrong
}

// call makes one, and says where it went; "" if it arrived.
func (p *proxy) call(ctx context.Context, c Call) string {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.From.AsSlice()}}
	connection, err := dialer.DialContext(ctx, "tcp", c.To.String())
	if err != nil {
		return cause(err)
	}
	end := hangUp(ctx, connection)
	defer end()
	switch original, err := p.ask(connection); {
	case err != nil:
		return "another process has it"
	case original != c.To.String():
		return fmt.Sprintf("it arrived as a call to %s, so something other than the plugin's "+
			"rules brought it", original)
	}
	return ""
}

// cause is why a connection was not made, without its addresses.
func cause(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok:
		return err.Error()
	case op.Timeout():
		return fmt.Sprintf("nobody answered within %s", timeout)
	}
	return op.Err.Error()
}
