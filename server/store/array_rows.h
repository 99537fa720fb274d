// server/store/array_rows.h: reads and writes the rows of arrays. All functions run on a connection
// inside a transaction and throw SqliteError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/array.h"
#include "server/store/sqlite.h"

namespace trainyard::server {

Error array_not_found(std::string_view id);

/// The key columns of an array, without its specs, which may have megabytes.
struct ArrayKey {
  int64_t order = 0;
  std::string uid;
  std::string owner;  // also the owner of all members
};
std::optional<ArrayKey> find_array_key(Connection& db, std::string_view project,
                                       std::string_view id);
Result<ArrayKey> get_array_key(Connection& db, std::string_view project, std::string_view id);

Result<JobArray> get_array(Connection& db, std::string_view project, std::string_view id);
std::optional<JobArray> find_array_uid(Connection& db, std::string_view uid);
/// Returns the arrays whose `order` is below `before`, newest first. Their field `array` is left
/// empty.
std::vector<JobArray> read_arrays(Connection& db, std::string_view project, int64_t before,
                                  int64_t count_max);
/// Returns the number of members in each state that has any.
std::vector<std::pair<JobState, int64_t>> read_array_states(Connection& db, int64_t order);

/// Inserts the row and sets array.order.
void insert_array(Connection& db, JobArray& array);

}  // namespace trainyard::server
