package dashboards

// What follows is the part of Grafana's dashboard schema that the dashboards use. That Grafana
// takes it is tested by decoding it with the types that Grafana generates from its own schema.

// schemaVersion is that of the types that the test decodes with.
const schemaVersion = 42

// Dashboard is a dashboard of Grafana.
type Dashboard struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	Links         []Link      `json:"links"`
	Templating    Templating  `json:"templating"`
	Annotations   Annotations `json:"annotations"`
	Time          Range       `json:"time"`
	Refresh       string      `json:"refresh"`
	Timezone      string      `json:"timezone"`
	GraphTooltip  int         `json:"graphTooltip"`
	Editable      bool        `json:"editable"`
	SchemaVersion int         `json:"schemaVersion"`
	Panels        []Panel     `json:"panels"`
}

// Range is a range of time, relative to now.
type Range struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Annotations of a dashboard; these have none.
type Annotations struct {
	List []any `json:"list"`
}

// Templating has the variables of a dashboard.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is a choice of the reader, which queries name by $ and its name.
type Variable struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Label      string     `json:"label"`
	Query      any        `json:"query"`
	Definition string     `json:"definition,omitempty"`
	Datasource *Reference `json:"datasource,omitempty"`
	Current    *Choice    `json:"current,omitempty"`
	Refresh    int        `json:"refresh,omitempty"`
	Sort       int        `json:"sort,omitempty"`
	Multi      bool       `json:"multi"`
	IncludeAll bool       `json:"includeAll"`
	AllValue   string     `json:"allValue,omitempty"`
}

// Choice is what is chosen of a variable.
type Choice struct {
	Text  any `json:"text"`
	Value any `json:"value"`
}

// Reference names a data source.
type Reference struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Link of a dashboard or of a panel.
type Link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	URL         string   `json:"url,omitempty"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	TargetBlank bool     `json:"targetBlank"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

// The types of panels.
const (
	TypeRow        = "row"
	TypeTimeSeries = "timeseries"
	TypeStat       = "stat"
	TypeBarGauge   = "bargauge"
	TypeTable      = "table"
)

// Panel is a panel, or a row: the title above those that follow.
type Panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	GridPos         Grid             `json:"gridPos"`
	Datasource      *Reference       `json:"datasource,omitempty"`
	Targets         []Target         `json:"targets,omitempty"`
	FieldConfig     *FieldConfig     `json:"fieldConfig,omitempty"`
	Options         any              `json:"options,omitempty"`
	Transformations []Transformation `json:"transformations,omitempty"`
	Links           []Link           `json:"links,omitempty"`
	Collapsed       *bool            `json:"collapsed,omitempty"` // of a row
	Panels          *[]Panel         `json:"panels,omitempty"`    // of a row
}

// Grid is a place; a dashboard is 24 units wide.
type Grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is a query.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   *Reference `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
}

// FieldConfig says how values are shown.
type FieldConfig struct {
	Defaults  Defaults   `json:"defaults"`
	Overrides []Override `json:"overrides"`
}

// Defaults are for all values of a panel.
type Defaults struct {
	Unit       string      `json:"unit"`
	Decimals   *int        `json:"decimals,omitempty"`
	Min        *float64    `json:"min,omitempty"`
	Max        *float64    `json:"max,omitempty"`
	NoValue    string      `json:"noValue,omitempty"`
	Mappings   []Mapping   `json:"mappings,omitempty"`
	Thresholds *Thresholds `json:"thresholds,omitempty"`
	Color      *Color      `json:"color,omitempty"`
	Custom     any         `json:"custom,omitempty"`
}

// Color is how a colour is chosen.
type Color struct {
	Mode string `json:"mode"`
}

// Thresholds are where a colour begins.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []Step `json:"steps"`
}

// Step is a colour from a value on; the first has none.
type Step struct {
	Value *float64 `json:"value"`
	Color string   `json:"color"`
}

// Mapping has texts for values.
type Mapping struct {
	Type    string          `json:"type"`
	Options map[string]Text `json:"options"`
}

// Text takes the place of a value.
type Text struct {
	Text  string `json:"text"`
	Color string `json:"color"`
	Index int    `json:"index"`
}

// Override is for a column of a table.
type Override struct {
	Matcher    Matcher    `json:"matcher"`
	Properties []Property `json:"properties"`
}

// Matcher names a column.
type Matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

// Property is one setting of an override.
type Property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// Transformation of the results of queries into a table.
type Transformation struct {
	ID      string   `json:"id"`
	Options Organize `json:"options"`
}

// Organize names, orders and leaves out columns.
type Organize struct {
	Exclude map[string]bool   `json:"excludeByName,omitempty"`
	Index   map[string]int    `json:"indexByName,omitempty"`
	Rename  map[string]string `json:"renameByName,omitempty"`
}
