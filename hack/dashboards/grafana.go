package dashboards

// The following types are the part of Grafana's dashboard schema that the dashboards use. A test
// checks that Grafana accepts it: it decodes the dashboards with the types that Grafana generates
// from its own schema.

// schemaVersion is the version of the types with which the test decodes.
const schemaVersion = 42

// Dashboard represents a dashboard of Grafana.
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

// Range represents a range of time, relative to now.
type Range struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Annotations holds the annotations of a dashboard; these dashboards have none.
type Annotations struct {
	List []any `json:"list"`
}

// Templating holds the variables of a dashboard.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable represents a choice of the reader, which queries name by $ and its name.
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

// Choice holds the chosen values of a variable.
type Choice struct {
	Text  any `json:"text"`
	Value any `json:"value"`
}

// Reference names a data source.
type Reference struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Link represents a link of a dashboard or of a panel.
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

// These are the types of panels.
const (
	TypeRow        = "row"
	TypeTimeSeries = "timeseries"
	TypeStat       = "stat"
	TypeBarGauge   = "bargauge"
	TypeTable      = "table"
)

// Panel represents a panel, or a row: the title above the panels after it.
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

// Grid represents the position and the size of a panel; a dashboard is 24 units wide.
type Grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target represents a query.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   *Reference `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
}

// FieldConfig holds the settings for showing values.
type FieldConfig struct {
	Defaults  Defaults   `json:"defaults"`
	Overrides []Override `json:"overrides"`
}

// Defaults holds the settings for all values of a panel.
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

// Color holds the mode by which a color is chosen.
type Color struct {
	Mode string `json:"mode"`
}

// Thresholds holds the values at which a color begins.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []Step `json:"steps"`
}

// Step represents a color from a value on; the first step has no value.
type Step struct {
	Value *float64 `json:"value"`
	Color string   `json:"color"`
}

// Mapping holds texts for values.
type Mapping struct {
	Type    string          `json:"type"`
	Options map[string]Text `json:"options"`
}

// Text represents a text that is shown instead of a value.
type Text struct {
	Text  string `json:"text"`
	Color string `json:"color"`
	Index int    `json:"index"`
}

// Override holds the settings for a column of a table.
type Override struct {
	Matcher    Matcher    `json:"matcher"`
	Properties []Property `json:"properties"`
}

// Matcher names a column.
type Matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

// Property represents one setting of an override.
type Property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// Transformation represents a transformation of the results of queries into a table.
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
