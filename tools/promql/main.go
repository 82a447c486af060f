// Promql reads expressions of Prometheus from its standard input, a JSON list of strings, parses
// each by Prometheus' own parser, and writes what they ask for as JSON: a list of metrics, each
// with the labels that it is selected, grouped or joined by. An expression that does not parse ends
// it.
//
// It is a module of its own: nobody else needs Prometheus.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// A use is a metric as an expression uses it.
type use struct {
	Expression string   `json:"expression"`
	Metric     string   `json:"metric"`
	Labels     []string `json:"labels"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run() error {
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		return err
	}
	uses := []use{}
	for _, text := range expressions {
		found, err := read(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		uses = append(uses, found...)
	}
	return json.NewEncoder(os.Stdout).Encode(uses)
}

func read(text string) ([]use, error) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return nil, err
	}
	var uses []use
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		u := use{Expression: text, Metric: selector.Name}
		for _, m := range selector.LabelMatchers {
			if m.Name != labels.MetricName {
				u.Labels = append(u.Labels, m.Name)
			}
		}
		for _, outer := range path {
			u.Labels = append(u.Labels, grouping(outer)...)
		}
		uses = append(uses, u)
		return nil
	})
	return uses, nil
}

// grouping returns the labels that an expression leaves or joins by.
func grouping(node parser.Node) []string {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		if !n.Without {
			return n.Grouping
		}
	case *parser.BinaryExpr:
		if n.VectorMatching != nil && n.VectorMatching.On {
			return n.VectorMatching.MatchingLabels
		}
	}
	return nil
}
