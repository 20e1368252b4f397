package runsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// connector opens databases in memory that have only the tables of a source, and
// that can only be read.
type connector struct {
	source *source
	driver *sqlite.Driver
}

// Driver implements [driver.Connector].
func (c connector) Driver() driver.Driver { return c.driver }

// Connect implements [driver.Connector]. Double quotes are for names only.
func (c connector) Connect(ctx context.Context) (_ driver.Conn, err error) {
	var setup []string
	for i := range Tables {
		t := &table{Table: &Tables[i], source: c.source}
		c.source.tables = append(c.source.tables, t)
		module := "spool_" + t.Name
		if err := c.driver.RegisterModule(module, t); err != nil {
			return nil, fmt.Errorf("make table %s: %w", t.Name, err)
		}
		setup = append(setup, fmt.Sprintf("CREATE VIRTUAL TABLE %s USING %s", t.Name, module))
	}
	setup = append(setup, fmt.Sprintf("PRAGMA cache_size = -%d", maxMemory>>10), "PRAGMA query_only = on")
	conn, err := c.driver.Open("file::memory:?_dqs=0")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	executor, ok := conn.(driver.ExecerContext)
	guarded, ok2 := conn.(sqlite.AuthorizerRegisterer)
	if !ok || !ok2 {
		return nil, errors.New("this SQLite cannot refuse statements")
	}
	for _, text := range setup {
		if _, err := executor.ExecContext(ctx, text, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
	}
	return conn, guarded.RegisterAuthorizer(onlyReads)
}
