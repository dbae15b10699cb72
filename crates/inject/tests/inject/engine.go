// Renders templates with Go's own engine: a line of JSON in, a line of JSON out.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"text/template"
)

type question struct {
	Text string         `json:"text"`
	Data map[string]any `json:"data"`
}

type answer struct {
	Output string `json:"output"`
	Error  string `json:"error"`
}

func render(q question) answer {
	labels := map[string]string{}
	for name, value := range q.Data["labels"].(map[string]any) {
		labels[name] = value.(string)
	}
	q.Data["labels"] = labels
	parsed, err := template.New("inject").Parse(q.Text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var out strings.Builder
	if err := parsed.Execute(&out, q.Data); err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Output: out.String()}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			panic(err)
		}
		if err := out.Encode(render(q)); err != nil {
			panic(err)
		}
	}
}
