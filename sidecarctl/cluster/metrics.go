package cluster

import (
	"strconv"
	"strings"
)

// sample is a line of a page in Prometheus' text format.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// samples are those of an agent.
type samples []sample

// parseMetrics reads the samples of ours on a page; what is no sample is passed over.
func parseMetrics(page string) samples {
	var all samples
	for line := range strings.Lines(page) {
		s, ok := parseSample(strings.TrimSpace(line))
		if ok && strings.HasPrefix(s.name, "sidecar_cni_") {
			all = append(all, s)
		}
	}
	return all
}

func parseSample(line string) (sample, bool) {
	s := sample{labels: map[string]string{}}
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return s, false
	}
	s.name = line[:end]
	rest := line[end:]
	if rest[0] == '{' {
		var ok bool
		if rest, ok = s.readLabels(rest[1:]); !ok {
			return s, false
		}
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return s, false
	}
	var err error
	s.value, err = strconv.ParseFloat(words[0], 64)
	return s, err == nil
}

// readLabels reads name="value" pairs, and returns what follows the closing brace.
func (s *sample) readLabels(text string) (rest string, ok bool) {
	for {
		text = strings.TrimLeft(text, ", ")
		if after, closed := strings.CutPrefix(text, "}"); closed {
			return after, true
		}
		name, after, found := strings.Cut(text, `="`)
		if !found {
			return "", false
		}
		value, after, found := quoted(after)
		if !found {
			return "", false
		}
		s.labels[name], text = value, after
	}
}

// quoted reads a value up to its closing quote.
func quoted(text string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text) && text[i+1] == 'n':
			b.WriteByte('\n')
			i++
		case c == '\\' && i+1 < len(text):
			b.WriteByte(text[i+1])
			i++
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// value is that of a metric without labels; the second value says whether it is there.
func (all samples) value(name string) (float64, bool) {
	for _, s := range all {
		if s.name == name {
			return s.value, true
		}
	}
	return 0, false
}

// chain is the state of the chain, and the way of the entry.
func (all samples) chain() (reason, way string) {
	for _, s := range all {
		if s.name == "sidecar_cni_chain_state" && s.value == 1 {
			return s.labels["reason"], s.labels["way"]
		}
	}
	return "", ""
}

// by sums up a metric by some of its labels, whose values are joined by a blank. What is 0 is left
// out.
func (all samples) by(name string, labels ...string) map[string]int {
	sums := map[string]int{}
	for _, s := range all {
		if s.name != name || s.value == 0 {
			continue
		}
		var words []string
		for _, label := range labels {
			if word := s.labels[label]; word != "" {
				words = append(words, word)
			}
		}
		sums[strings.Join(words, " ")] += int(s.value)
	}
	return sums
}
