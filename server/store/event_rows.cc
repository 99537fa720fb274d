#include "server/store/event_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trainyard/v1/stored_event.pb.h"

namespace trainyard::server {
namespace {

// SQLite keeps a row of a table without row IDs in its page up to 1002 bytes of 4096, and gives the
// rest of a longer one pages of its own. A row's key and header take up to 23 of them.
constexpr size_t kRowBytesMax = 979;

std::string read_parts(Connection& db, int64_t job, int64_t seq) {
  Query query(db, "SELECT bytes FROM event_parts WHERE job = ? AND seq = ? ORDER BY part");
  query.bind(job).bind(seq);
  std::string payload;
  while (query.step()) payload += query.bytes(0);
  return payload;
}

bool is_float(double value) {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()) &&
         static_cast<double>(static_cast<float>(value)) == value;
}

/// A worker's batch that is not as the contract says is stored as it came.
bool can_pack(const v1::MetricBatch& batch) {
  return batch.series_size() > 0 && std::ranges::all_of(batch.series(), [](const auto& series) {
           return series.steps_size() > 0 && series.steps_size() == series.values_size();
         });
}

// Steps of untrusted workers may be any number: differences wrap around and come back.
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

void pack_steps(const v1::MetricSeries& series, v1::StoredSeries& out) {
  const auto& steps = series.steps();
  out.set_first_step(steps[0]);
  if (steps.size() == 1) return;
  const int64_t gap = difference(steps[1], steps[0]);
  bool even = true;
  for (int i = 2; i < steps.size(); ++i) even &= difference(steps[i], steps[i - 1]) == gap;
  if (even) return out.add_gaps(gap);
  out.mutable_gaps()->Reserve(steps.size() - 1);
  for (int i = 1; i < steps.size(); ++i) out.add_gaps(difference(steps[i], steps[i - 1]));
}

void pack_values(const v1::MetricSeries& series, v1::StoredSeries& out) {
  const auto& values = series.values();
  if (!std::ranges::all_of(values, is_float)) {
    *out.mutable_doubles() = values;
    return;
  }
  out.mutable_floats()->Reserve(values.size());
  for (const double value : values) out.add_floats(static_cast<float>(value));
}

bool unpack_series(v1::StoredSeries& stored, v1::MetricSeries& out) {
  const int count = stored.floats_size() + stored.doubles_size();
  const int gaps = stored.gaps_size();
  if (count == 0 || (stored.floats_size() > 0 && stored.doubles_size() > 0) ||
      (gaps != count - 1 && (gaps != 1 || count == 1))) {
    return false;
  }
  out.set_key(std::move(*stored.mutable_key()));
  out.mutable_steps()->Reserve(count);
  int64_t step = stored.first_step();
  out.add_steps(step);
  for (int i = 1; i < count; ++i) {
    step = sum(step, stored.gaps(gaps == 1 ? 0 : i - 1));
    out.add_steps(step);
  }
  if (stored.doubles_size() > 0) {
    out.mutable_values()->Swap(stored.mutable_doubles());
  } else {
    out.mutable_values()->Add(stored.floats().begin(), stored.floats().end());
  }
  out.mutable_non_finite()->Swap(stored.mutable_non_finite());
  return true;
}

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
  const std::string_view payload = row.bytes(1);
  if (!unpack_event(payload.empty() ? read_parts(db, job, row.integer(0)) : payload, event))
    throw SqliteError(SQLITE_CORRUPT, 0, "an event's payload does not parse");
  return event;
}

std::string pack_event(v1::Event event) {
  if (!event.has_metrics() || !can_pack(event.metrics())) return event.SerializeAsString();
  v1::StoredEvent stored;
  for (v1::MetricSeries& series : *event.mutable_metrics()->mutable_series()) {
    v1::StoredSeries& out = *stored.mutable_metrics()->add_series();
    out.set_key(std::move(*series.mutable_key()));
    pack_steps(series, out);
    pack_values(series, out);
    out.mutable_non_finite()->Swap(series.mutable_non_finite());
  }
  event.clear_metrics();
  std::string payload = event.SerializeAsString();
  stored.AppendToString(&payload);
  return payload;
}

bool unpack_event(std::string_view payload, v1::Event& event) {
  const int size = static_cast<int>(payload.size());
  if (!event.ParseFromArray(payload.data(), size)) return false;
  if (event.kind_case() != v1::Event::KIND_NOT_SET) return true;
  event.DiscardUnknownFields();  // the packed part
  v1::StoredEvent stored;
  if (!stored.ParseFromArray(payload.data(), size)) return false;
  for (v1::StoredSeries& series : *stored.mutable_metrics()->mutable_series()) {
    if (!unpack_series(series, *event.mutable_metrics()->add_series())) return false;
  }
  return true;
}

}  // namespace trainyard::server
