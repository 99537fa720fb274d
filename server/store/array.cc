#include "server/store/array.h"

#include <algorithm>

#include "server/store/proto_time.h"

namespace trainyard::server {

bool JobArray::has_ended() const {
  return std::ranges::all_of(states, [](const auto& count) { return is_terminal(count.first); });
}

v1::JobArray to_proto(JobArray array) {
  v1::JobArray out;
  out.set_name(array.name());
  out.set_uid(array.uid);
  *out.mutable_spec() = std::move(array.spec);
  *out.mutable_array() = std::move(array.array);
  out.set_owner(array.owner);
  *out.mutable_create_time() = to_timestamp(array.create_time_us);
  if (array.has_ended()) *out.mutable_end_time() = to_timestamp(array.end_time_us);
  out.set_size(array.size);
  for (const auto& [state, count] : array.states) {
    v1::JobArray::StateCount& to = *out.add_states();
    to.set_state(static_cast<v1::JobState>(state));
    to.set_count(static_cast<int32_t>(count));
  }
  return out;
}

std::string member_id(std::string_view array_id, int64_t index) {
  return std::string(array_id) + "-" + std::to_string(index);
}

std::string_view array_id_of(std::string_view member_id) {
  return member_id.substr(0, std::min(member_id.rfind('-'), member_id.size()));
}

}  // namespace trainyard::server
