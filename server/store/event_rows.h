// server/store/event_rows.h: events as rows hold them. Metrics are most of what jobs store: they
// are packed (proto/metrics/packed_metrics.h), and rows are small enough that they fill their
// pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/store/sqlite.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// Into the rows of job number `job`.
void insert_event(Connection& db, int64_t job, v1::Event event);
/// `row` has the event's seq and payload. Throws SqliteError if the rows are damaged.
v1::Event read_event(Connection& db, int64_t job, const Query& row);
/// The same, as bytes of the wire, with metrics packed.
std::string read_packed_event(Connection& db, int64_t job, const Query& row);

std::string pack_event(v1::Event event);
/// The event that pack_event() made these bytes of. False if they are not whole.
bool unpack_event(std::string_view payload, v1::Event& event);

}  // namespace trainyard::server
