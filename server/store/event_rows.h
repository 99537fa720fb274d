// server/store/event_rows.h: reads and writes the rows of events. Most of the stored data of jobs
// is metrics, so they are packed (proto/metrics/packed_metrics.h), and rows are kept so small that
// they need no overflow pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/store/sqlite.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// Inserts an event of the job with number `job`.
void insert_event(Connection& db, int64_t job, v1::Event event);
/// Reads the event of `row`, whose columns are seq and payload. Throws SqliteError if the rows are
/// damaged.
v1::Event read_event(Connection& db, int64_t job, const Query& row);
/// Reads the event of `row` as a serialized message whose metrics stay packed.
std::string read_packed_event(Connection& db, int64_t job, const Query& row);

std::string pack_event(v1::Event event);
/// Restores the event that pack_event() serialized. Returns false if the bytes are damaged.
bool unpack_event(std::string_view payload, v1::Event& event);

}  // namespace trainyard::server
