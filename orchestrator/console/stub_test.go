package console_test

import (
	"context"

	"github.com/picket-dev/picket"
)

func (d desk) ApproveAll(ctx context.Context, by picket.Caller, b picket.BulkApproval) (picket.BulkApproved, error) {
	return picket.BulkApproved{}, nil
}
