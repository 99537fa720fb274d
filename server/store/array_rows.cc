#include "server/store/array_rows.h"

#include "src/base/text.h"

namespace trainyard::server {
namespace {

#define ARRAY_COLUMNS \
  "number, project, id, uid, owner, spec, size, create_time_us, end_time_us, array_spec"

template <typename Message>
Message parse_blob(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    throw SqliteError(SQLITE_CORRUPT, 0, "a blob is not a " + message.GetTypeName());
  return message;
}

JobArray read_array(const Query& row) {
  JobArray array;
  array.order = row.integer(0);
  array.project = row.text(1);
  array.id = row.text(2);
  array.uid = row.text(3);
  array.owner = row.text(4);
  array.spec = parse_blob<v1::JobSpec>(row.bytes(5));
  array.size = static_cast<int32_t>(row.integer(6));
  array.create_time_us = row.integer(7);
  array.end_time_us = row.integer(8);
  array.array = parse_blob<v1::ArraySpec>(row.bytes(9));
  return array;
}

}  // namespace

Error array_not_found(std::string_view id) {
  return make_error(ErrorCode::kNotFound, "ARRAY_NOT_FOUND",
                    "there is no array " + quoted_value(id) + ".");
}

std::optional<ArrayKey> find_array_key(Connection& db, std::string_view project,
                                       std::string_view id) {
  Query query(db, "SELECT number, uid, owner FROM arrays WHERE project = ? AND id = ?");
  query.bind(project).bind(id);
  if (!query.step()) return std::nullopt;
  return ArrayKey{query.integer(0), query.text(1), query.text(2)};
}

Result<ArrayKey> get_array_key(Connection& db, std::string_view project, std::string_view id) {
  if (std::optional<ArrayKey> key = find_array_key(db, project, id)) return std::move(*key);
  return array_not_found(id);
}

Result<JobArray> get_array(Connection& db, std::string_view project, std::string_view id) {
  std::optional<JobArray> array;
  {
    Query query(db, "SELECT " ARRAY_COLUMNS " FROM arrays WHERE project = ? AND id = ?");
    query.bind(project).bind(id);
    if (query.step()) array = read_array(query);
  }
  if (!array) return array_not_found(id);
  array->states = read_array_states(db, array->order);
  return std::move(*array);
}

std::optional<JobArray> find_array_uid(Connection& db, std::string_view uid) {
  std::optional<JobArray> array;
  {
    Query query(db, "SELECT " ARRAY_COLUMNS " FROM arrays WHERE uid = ?");
    query.bind(uid);
    if (query.step()) array = read_array(query);
  }
  if (array) array->states = read_array_states(db, array->order);
  return array;
}

std::vector<JobArray> read_arrays(Connection& db, std::string_view project, int64_t before,
                                  int64_t count_max) {
  std::vector<JobArray> arrays;
  {
    Query query(
        db,
        "SELECT number, project, id, uid, owner, spec, size, create_time_us, end_time_us, x''"
        " FROM arrays WHERE number < ? AND project = ? ORDER BY number DESC LIMIT ?");
    query.bind(before).bind(project).bind(count_max);
    while (query.step()) arrays.push_back(read_array(query));
  }
  for (JobArray& array : arrays) array.states = read_array_states(db, array.order);
  return arrays;
}

std::vector<std::pair<JobState, int64_t>> read_array_states(Connection& db, int64_t order) {
  std::vector<std::pair<JobState, int64_t>> states;
  Query query(db, "SELECT state, jobs FROM array_states WHERE array = ? AND jobs > 0");
  query.bind(order);
  while (query.step()) {
    states.emplace_back(static_cast<JobState>(query.integer(0)), query.integer(1));
  }
  return states;
}

void insert_array(Connection& db, JobArray& array) {
  Query query(db,
              "INSERT INTO arrays (project, id, uid, owner, spec, array_spec, size, create_time_us,"
              " end_time_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)");
  query.bind(array.project).bind(array.id).bind(array.uid).bind(array.owner);
  query.bind_blob(array.spec.SerializeAsString()).bind_blob(array.array.SerializeAsString());
  query.bind(int64_t{array.size}).bind(array.create_time_us).run();
  array.order = db.last_row();
}

}  // namespace trainyard::server
