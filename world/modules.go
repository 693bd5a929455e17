package world

import (
	"fmt"
	"strings"

	"muster.internal/module"
)

// catalogue is what scenarios can want. What stands for its resources is a
// container that says which placement it is of; a version is another image.
var catalogue = map[string]string{
	"time":   `"base":true,"place":{"each_node":true}`,
	"agent":  `"place":{"each_node":true},"after":["time"]`,
	"db":     `"place":{"replicas":3,"spread":"rack","minimum":2},"moves":"surge","health":{"port":5432,"path":"/up","caught_up":"/caught-up"}`,
	"web":    `"place":{"replicas":2,"minimum":1}`,
	"one":    `"place":{"replicas":1,"minimum":0}`,
	"volume": `"place":{"each_disk":true}`,
}

// wanted is a module of the catalogue. Only replicas know of each other: else each
// node that comes would change all others.
func wanted(name string, version int) (*module.Module, error) {
	peers := ""
	if strings.Contains(catalogue[name], "replicas") {
		peers = "{{ peers.names }}"
	}
	m, err := module.Parse("catalogue", fmt.Appendf(nil, `{"module":%q,"version":%d,%s,"resources":[
 {"file":{"path":"/etc/{{ placement.name }}.peers","template":"%[4]s"}},
 {"container":{"name":"{{ placement.name }}","image":"%[1]s:%[2]d","environment":{"MODULE":%[1]q,"PLACEMENT":"{{ placement.id }}"}}}]}`, name, version, catalogue[name], peers))
	return &m, err
}
