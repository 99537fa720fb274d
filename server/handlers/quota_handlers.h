// server/handlers/quota_handlers.h: the calls about quotas and usage.
#pragma once

#include <functional>

#include "server/handlers/unary.h"
#include "server/people/people.h"
#include "server/serving/call_quotas.h"
#include "server/store/store.h"
#include "src/base/clock.h"

namespace trainyard::server {

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct QuotaParts {
  Store& store;
  const Clock& clock;
  const People& people;
  CallQuotas& call_quotas;
  std::function<void()> quotas_changed;  // requests a scheduling pass
};

/// Registers SetQuota, ListQuotas and GetUsage. The handlers are thread-safe.
void add_quota_rows(Methods& rows, const QuotaParts& parts);

}  // namespace trainyard::server
