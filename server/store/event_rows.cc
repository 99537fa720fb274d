#include "server/store/event_rows.h"

#include <utility>

#include "proto/metrics/packed_metrics.h"

namespace trainyard::server {
namespace {

// With pages of 4096 bytes, SQLite stores up to 1002 bytes of a row of a WITHOUT ROWID table in the
// B-tree page, and puts the rest of a longer row on overflow pages. A row's key and header take up
// to 23 of these bytes.
constexpr size_t kRowBytesMax = 979;

std::string read_parts(Connection& db, int64_t job, int64_t seq) {
  Query query(db, "SELECT bytes FROM event_parts WHERE job = ? AND seq = ? ORDER BY part");
  query.bind(job).bind(seq);
  std::string payload;
  while (query.step()) payload += query.bytes(0);
  return payload;
}

std::string read_payload(Connection& db, int64_t job, const Query& row) {
  const std::string_view payload = row.bytes(1);
  return payload.empty() ? read_parts(db, job, row.integer(0)) : std::string(payload);
}

SqliteError damaged_event() { return {SQLITE_CORRUPT, 0, "an event's payload does not parse"}; }

}  // namespace

void insert_event(Connection& db, int64_t job, v1::Event event) {
  const int64_t seq = event.seq();
  const std::string payload = pack_event(std::move(event));
  const bool whole = payload.size() <= kRowBytesMax;
  Query(db, "INSERT INTO events (job, seq, payload) VALUES (?, ?, ?)")
      .bind(job)
      .bind(seq)
      .bind_blob(whole ? payload : "")
      .run();
  if (whole) return;
  for (size_t at = 0; at < payload.size(); at += kRowBytesMax) {
    Query(db, "INSERT INTO event_parts (job, seq, part, bytes) VALUES (?, ?, ?, ?)")
        .bind(job)
        .bind(seq)
        .bind(static_cast<int64_t>(at / kRowBytesMax))
        .bind_blob(payload.substr(at, kRowBytesMax))
        .run();
  }
}

v1::Event read_event(Connection& db, int64_t job, const Query& row) {
  v1::Event event;
  if (!unpack_event(read_payload(db, job, row), event)) throw damaged_event();
  return event;
}

std::string read_packed_event(Connection& db, int64_t job, const Query& row) {
  std::string payload = read_payload(db, job, row);
  v1::Event event;
  if (!event.ParseFromString(payload) ||
      (event.has_packed_metrics() && !is_whole(event.packed_metrics()))) {
    throw damaged_event();
  }
  return payload;
}

std::string pack_event(v1::Event event) {
  pack_metrics(event);
  return event.SerializeAsString();
}

bool unpack_event(std::string_view payload, v1::Event& event) {
  return event.ParseFromArray(payload.data(), static_cast<int>(payload.size())) &&
         unpack_metrics(event);
}

}  // namespace trainyard::server
