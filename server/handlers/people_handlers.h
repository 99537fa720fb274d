// server/handlers/people_handlers.h: the methods of PeopleService.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/handlers/unary.h"
#include "server/people/people.h"
#include "server/store/store.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct PeopleParts {
  Store& store;
  People& people;
  // Checks the names of devices that a project is to use; null: any are taken.
  std::function<Status(const std::vector<std::string>&)> check_devices;
  // Called after a project's devices have changed; null: nothing is to be done.
  std::function<void()> devices_changed;
};

/// Registers the methods of PeopleService. The handlers are thread-safe.
void add_people_rows(Methods& rows, const PeopleParts& parts);

}  // namespace trainyard::server
