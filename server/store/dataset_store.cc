#include "server/store/dataset_store.h"

#include <limits>
#include <set>
#include <utility>

#include "server/store/page_token.h"
#include "server/store/proto_time.h"
#include "server/store/quota_rows.h"
#include "server/store/removals.h"
#include "server/store/store_core.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

#define DATASET_COLUMNS                                                              \
  "project, id, version, digest, state, reason, message, spec, schema, size_bytes, " \
  "create_time_us, owner,"                                                           \
  " number"
constexpr int kNumberColumn = 12;
constexpr int kVersionsListed = 10;

Dataset read_dataset(const Query& row) {
  Dataset d;
  d.project = row.text(0);
  d.id = row.text(1);
  d.version = static_cast<int32_t>(row.integer(2));
  d.digest = row.text(3);
  d.state = static_cast<v1::Dataset::State>(row.integer(4));
  d.reason = row.text(5);
  d.message = row.text(6);
  if (!d.spec.ParseFromString(row.text(7)) || !d.schema.ParseFromString(row.text(8)))
    throw SqliteError(SQLITE_CORRUPT, 0, "a dataset's blob does not parse");
  d.size_bytes = row.integer(9);
  d.create_time_us = row.integer(10);
  d.owner = row.text(11);
  return d;
}

/// Returns the versions that a reference selects, newest first: the given version, or all versions
/// of the ID.
std::vector<Dataset> read_versions(Connection& db, std::string_view project,
                                   const DatasetRef& ref) {
  Query query(db, "SELECT " DATASET_COLUMNS
                  " FROM datasets WHERE project = ? AND id = ? AND ? IN (0, version)"
                  " ORDER BY version DESC");
  query.bind(project).bind(ref.id).bind(int64_t{ref.version});
  std::vector<Dataset> versions;
  while (query.step()) versions.push_back(read_dataset(query));
  return versions;
}

std::optional<Dataset> find_newest(Connection& db, std::string_view project, std::string_view id) {
  Query query(db, "SELECT " DATASET_COLUMNS
                  " FROM datasets WHERE project = ? AND id = ? ORDER BY version DESC LIMIT 1");
  query.bind(project).bind(id);
  if (!query.step()) return std::nullopt;
  return read_dataset(query);
}

Error dataset_not_found(Connection& db, const std::string& project, const DatasetRef& ref) {
  Query query(db,
              "SELECT version FROM datasets WHERE project = ? AND id = ? ORDER BY version DESC"
              " LIMIT ?");
  query.bind(project).bind(ref.id).bind(int64_t{kVersionsListed} + 1);
  std::string versions;
  for (int listed = 0; query.step(); ++listed) {
    if (listed > 0) versions += ", ";
    if (listed == kVersionsListed) {
      versions += "...";
      break;
    }
    versions += std::to_string(query.integer(0));
  }
  return make_error(ErrorCode::kNotFound, "DATASET_NOT_FOUND",
                    "there is no dataset " + quoted_value(ref.text()) +
                        (versions.empty() ? "." : "; it has the versions " + versions + "."));
}

Result<Dataset> get_dataset(Connection& db, const std::string& project, const DatasetRef& ref) {
  std::vector<Dataset> versions = read_versions(db, project, ref);
  if (versions.empty()) return dataset_not_found(db, project, ref);
  return std::move(versions.front());
}

/// Reserves and returns a version number that was never used for this ID.
int32_t take_version(Connection& db, std::string_view project, std::string_view id) {
  Query query(db,
              "INSERT INTO dataset_ids (project, id, newest_version) VALUES (?, ?, 1)"
              " ON CONFLICT (project, id) DO UPDATE SET newest_version = newest_version + 1"
              " RETURNING newest_version");
  query.bind(project).bind(id);
  TRAINYARD_CHECK(query.step(), "an upsert returns its row");
  return static_cast<int32_t>(query.integer(0));
}

// Returns any dataset with this digest in this state.
std::optional<Dataset> find_digest(Connection& db, std::string_view digest,
                                   v1::Dataset::State state) {
  Query query(db,
              "SELECT " DATASET_COLUMNS " FROM datasets WHERE digest = ? AND state = ? LIMIT 1");
  query.bind(digest).bind(int64_t{state});
  if (!query.step()) return std::nullopt;
  return read_dataset(query);
}

void save_dataset(Connection& db, const Dataset& d) {
  Query query(db,
              "INSERT INTO datasets (project, id, version, digest, state, reason, message, spec,"
              " schema, size_bytes, create_time_us, owner)"
              " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
              " ON CONFLICT (project, id, version) DO UPDATE SET state = excluded.state,"
              " reason = excluded.reason, message = excluded.message, spec = excluded.spec,"
              " schema = excluded.schema,"
              " size_bytes = excluded.size_bytes");
  query.bind(d.project).bind(d.id).bind(int64_t{d.version}).bind(d.digest).bind(int64_t{d.state});
  query.bind(d.reason).bind(d.message).bind_blob(d.spec.SerializeAsString());
  query.bind_blob(d.schema.SerializeAsString()).bind(d.size_bytes).bind(d.create_time_us);
  query.bind(d.owner).run();
}

Error not_owner(const Dataset& newest) {
  return make_error(ErrorCode::kPermissionDenied, "ROLE_REQUIRED",
                    "dataset_id: the dataset " + quoted_value(newest.id) + " belongs to " +
                        (newest.owner.empty() ? std::string("nobody who is known") : newest.owner) +
                        ", and only its owner and maintainers of projects/" + newest.project +
                        " may add a version with other content; choose another dataset_id");
}

Result<CreatedDataset> create_dataset(WriteContext& context, const NewDataset& asked) {
  Connection& db = context.db;
  CreatedDataset created;
  std::optional<Dataset> newest = find_newest(db, asked.project, asked.id);
  if (newest && newest->digest == asked.digest) {
    created.dataset = std::move(*newest);
    if (created.dataset.state != v1::Dataset::FAILED) return created;
    created.dataset.spec = asked.spec;  // the same content, perhaps at another path
  } else {
    if (newest && newest->owner != asked.owner && !asked.may_change_others) {
      return not_owner(*newest);
    }
    if (Status s = check_stored_bytes(db, asked.project, asked.owner, 0); !s.ok()) return s.error();
    created.dataset.project = asked.project;
    created.dataset.owner = asked.owner;
    created.dataset.id = asked.id;
    created.dataset.version = take_version(db, asked.project, asked.id);
    created.dataset.digest = asked.digest;
    created.dataset.spec = asked.spec;
    created.dataset.create_time_us = context.now_us;
  }
  Dataset& d = created.dataset;
  d.state = v1::Dataset::INGESTING;
  d.reason.clear();
  d.message.clear();
  if (const std::optional<Dataset> ready = find_digest(db, d.digest, v1::Dataset::READY)) {
    d.state = v1::Dataset::READY;
    d.schema = ready->schema;
    d.size_bytes = ready->size_bytes;
  } else {
    created.start_ingest = !find_digest(db, d.digest, v1::Dataset::INGESTING);
  }
  save_dataset(db, d);
  return created;
}

Error dataset_in_use(const std::string& project, const DatasetRef& ref, const std::string& user) {
  return make_error(ErrorCode::kFailedPrecondition, "DATASET_IN_USE",
                    "projects/" + project + "/datasets/" + ref.text() + " is used by " + user);
}

Result<DatasetStore::Removed> remove_datasets(WriteContext& context, const std::string& project,
                                              const DatasetRef& ref) {
  Connection& db = context.db;
  DatasetStore::Removed removed;
  removed.datasets = read_versions(db, project, ref);
  if (removed.datasets.empty()) return dataset_not_found(db, project, ref);
  {
    Query query(db,
                "SELECT id, dataset_version FROM jobs INDEXED BY jobs_unfinished WHERE project = ?"
                " AND dataset = ? AND ? IN (0, dataset_version) AND state < 5"
                " AND dataset_project = '' LIMIT 1");
    query.bind(project).bind(ref.id).bind(int64_t{ref.version});
    if (query.step()) {
      return dataset_in_use(
          project, {ref.id, static_cast<int32_t>(query.integer(1))},
          "the unfinished job " + query.text(0) + "; cancel the job or wait until it ends.");
    }
  }
  {
    Query query(db,
                "SELECT dataset_version FROM jobs INDEXED BY jobs_with_shared_dataset"
                " WHERE dataset_project = ? AND dataset = ? AND ? IN (0, dataset_version)"
                " AND state < 5 AND dataset_project > '' LIMIT 1");
    query.bind(project).bind(ref.id).bind(int64_t{ref.version});
    if (query.step()) {
      return dataset_in_use(project, {ref.id, static_cast<int32_t>(query.integer(0))},
                            "an unfinished job of another project; wait until it ends.");
    }
  }
  Query remove(db, "DELETE FROM datasets WHERE project = ? AND id = ? AND ? IN (0, version)");
  remove.bind(project).bind(ref.id).bind(int64_t{ref.version}).run();
  std::set<std::string> digests;
  for (const Dataset& d : removed.datasets) {
    if (d.state == v1::Dataset::READY) digests.insert(d.digest);
  }
  for (const std::string& digest : digests) {
    Query query(db, "SELECT 1 FROM datasets WHERE digest = ? LIMIT 1");
    query.bind(digest);
    if (query.step()) continue;
    removed.unused_digests.push_back(digest);
    note_removal(db, "datasets/" + digest);
  }
  return removed;
}

/// Wraps `done` so that the count of dataset changes grows before `done` runs.
template <typename T>
Done<T> counted(StoreCore& core, Done<T> done) {
  return [&core, done = std::move(done)](Result<T> result) {
    ++core.dataset_changes;
    done(std::move(result));
  };
}

}  // namespace

v1::Dataset to_proto(const Dataset& d) {
  v1::Dataset out;
  out.set_name(d.name());
  out.set_version(d.version);
  out.set_digest(d.digest);
  out.set_state(d.state);
  out.set_reason(d.reason);
  out.set_message(d.message);
  *out.mutable_spec() = d.spec;
  if (d.state == v1::Dataset::READY) *out.mutable_schema() = d.schema;
  out.set_size_bytes(d.size_bytes);
  *out.mutable_create_time() = to_timestamp(d.create_time_us);
  out.set_owner(d.owner);
  return out;
}

Result<CreatedDataset> DatasetStore::create(NewDataset dataset) {
  return wait_for<CreatedDataset>([&](Done<CreatedDataset> done) {
    core_.change<CreatedDataset>(
        [dataset = std::move(dataset)](WriteContext& context) {
          return create_dataset(context, dataset);
        },
        counted(core_, std::move(done)));
  });
}

void DatasetStore::set_ready(std::string digest, v1::DatasetSchema schema, int64_t size_bytes,
                             Done<void> done) {
  core_.change<void>(
      [digest = std::move(digest), schema = std::move(schema),
       size_bytes](WriteContext& context) -> Status {
        Query query(context.db,
                    "UPDATE datasets SET state = 2, reason = '', message = '', schema = ?,"
                    " size_bytes = ? WHERE digest = ? AND state = 1");
        query.bind_blob(schema.SerializeAsString()).bind(size_bytes).bind(digest).run();
        return {};
      },
      counted(core_, std::move(done)));
}

void DatasetStore::set_failed(std::string digest, std::string reason, std::string message,
                              Done<void> done) {
  core_.change<void>(
      [digest = std::move(digest), reason = std::move(reason),
       message = std::move(message)](WriteContext& context) -> Status {
        Query query(context.db,
                    "UPDATE datasets SET state = 3, reason = ?, message = ?"
                    " WHERE digest = ? AND state = 1");
        query.bind(reason).bind(message).bind(digest).run();
        return {};
      },
      counted(core_, std::move(done)), Urgency::kEssential);
}

Result<DatasetStore::Removed> DatasetStore::remove(const std::string& project,
                                                   const DatasetRef& ref) {
  return wait_for<Removed>([&](Done<Removed> done) {
    core_.change<Removed>(
        [project, ref](WriteContext& context) { return remove_datasets(context, project, ref); },
        counted(core_, std::move(done)), Urgency::kEssential);
  });
}

int64_t DatasetStore::changes() const { return core_.dataset_changes; }

Result<Dataset> DatasetStore::find(const std::string& project, const DatasetRef& ref) const {
  return core_.read<Dataset>([&](Connection& db) { return get_dataset(db, project, ref); });
}

Result<Dataset> DatasetStore::find_usable(const std::string& project, const DatasetRef& ref) const {
  return core_.read<Dataset>([&](Connection& db) -> Result<Dataset> {
    std::vector<Dataset> versions = read_versions(db, project, ref);
    for (Dataset& d : versions) {
      if (d.state != v1::Dataset::FAILED) return std::move(d);
    }
    if (versions.empty()) return dataset_not_found(db, project, ref);
    return std::move(versions.front());
  });
}

Result<bool> DatasetStore::has_ready(const std::string& digest) const {
  return core_.read<bool>([&](Connection& db) -> Result<bool> {
    return find_digest(db, digest, v1::Dataset::READY).has_value();
  });
}

Result<bool> DatasetStore::has_ready(const std::string& project, const std::string& digest) const {
  return core_.read<bool>([&](Connection& db) -> Result<bool> {
    Query query(db,
                "SELECT 1 FROM datasets WHERE digest = ? AND state = 2 AND project = ? LIMIT 1");
    query.bind(digest).bind(project);
    return query.step();
  });
}

Result<DatasetPage> DatasetStore::list(const std::string& project, bool all_versions,
                                       int32_t page_size, const std::string& page_token) const {
  ASSIGN_OR_RETURN(const int64_t count_max, page_size_of(page_size));
  const std::string signed_query = (all_versions ? "dataset versions " : "datasets ") + project;
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(before, read_page_token(core_.page_token_key, signed_query, page_token));
  }
  return core_.read<DatasetPage>([&](Connection& db) -> Result<DatasetPage> {
    DatasetPage page;
    Query query(db, "SELECT " DATASET_COLUMNS
                    " FROM datasets WHERE project = ? AND number < ? AND (? OR version ="
                    " (SELECT max(version) FROM datasets AS same"
                    " WHERE same.project = datasets.project AND same.id = datasets.id))"
                    " ORDER BY number DESC LIMIT ?");
    query.bind(project).bind(before).bind(int64_t{all_versions}).bind(count_max + 1);
    int64_t last = 0;
    while (query.step()) {
      if (static_cast<int64_t>(page.datasets.size()) == count_max) {
        page.next_page_token = make_page_token(core_.page_token_key, signed_query, last);
        break;
      }
      last = query.integer(kNumberColumn);
      page.datasets.push_back(read_dataset(query));
    }
    return page;
  });
}

Result<std::vector<Dataset>> DatasetStore::list_ingesting() const {
  return core_.read<std::vector<Dataset>>([](Connection& db) -> Result<std::vector<Dataset>> {
    Query query(db, "SELECT " DATASET_COLUMNS
                    " FROM datasets WHERE number IN"
                    " (SELECT min(number) FROM datasets WHERE state = 1 GROUP BY digest)"
                    " ORDER BY number");
    std::vector<Dataset> datasets;
    while (query.step()) datasets.push_back(read_dataset(query));
    return datasets;
  });
}

}  // namespace trainyard::server
