package api

import "time"

// SetBatchTime changes how long a batch goes on submitting.
func (a *API) SetBatchTime(d time.Duration) { a.batchTime = d }
