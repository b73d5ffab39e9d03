package frozen

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestOpenAPI keeps every method, path, answer and schema of the description.
// Other tests hold the running servers against the same description.
func TestOpenAPI(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	var lines []string
	outline(&lines, "", document)
	compare(t, "openapi", lines)
}

// outline appends every path into value that ends in a scalar. Prose is left out.
func outline(lines *[]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			_, isText := inner.(string)
			switch name {
			case "description", "summary", "example":
				if isText {
					continue
				}
			}
			outline(lines, path+"/"+name, inner)
		}
	case []any:
		for _, inner := range value {
			outline(lines, path+"/-", inner)
		}
	default:
		*lines = append(*lines, fmt.Sprintf("%s %v", path, value))
	}
}
