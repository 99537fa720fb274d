#include "server/store/drain_store.h"

#include "server/store/store_core.h"

namespace trainyard::server {

Status DrainStore::put(const DeviceDrain& drain) {
  return core_.change_and_wait<void>(
      [drain](WriteContext& context) -> Status {
        Query query(context.db,
                    "INSERT OR REPLACE INTO device_drains"
                    " (device, name, model, reason, owner, vacate, time_us)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)");
        query.bind(drain.device).bind(drain.name).bind(drain.model).bind(drain.reason);
        query.bind(drain.owner).bind(int64_t{drain.vacate}).bind(context.now_us).run();
        return {};
      },
      Urgency::kEssential);
}

Status DrainStore::remove(const std::string& device) {
  return core_.change_and_wait<void>(
      [device](WriteContext& context) -> Status {
        Query(context.db, "DELETE FROM device_drains WHERE device = ?").bind(device).run();
        return {};
      },
      Urgency::kEssential);
}

Result<std::vector<DeviceDrain>> DrainStore::list() const {
  return core_.read<std::vector<DeviceDrain>>(
      [](Connection& db) -> Result<std::vector<DeviceDrain>> {
        Query query(db,
                    "SELECT device, name, model, reason, owner, vacate, time_us"
                    " FROM device_drains ORDER BY name");
        std::vector<DeviceDrain> drains;
        while (query.step()) {
          drains.push_back({query.text(0), query.text(1), query.text(2), query.text(3),
                            query.text(4), query.integer(5) != 0, query.integer(6)});
        }
        return drains;
      });
}

}  // namespace trainyard::server
