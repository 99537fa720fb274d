// server/handlers/access.h: the one table that says which role each call needs.
//
// Every handler's frame asks it after the caller is known and before anything is done. The table is
// also docs/access.md, which a test compares with it, and tests/server/service_access_test.cc runs
// all of it: every method by every role, owner and project.
#pragma once

#include <google/protobuf/message.h>

#include <span>
#include <string_view>

#include "server/people/people.h"
#include "src/base/result.h"

namespace trainyard::server {

class Store;

enum class Need {
  kAnyone,      // authenticated; the handler shows only what the caller may see
  kViewer,      // in the project of the request's name or parent; also of what is shared with one of
                // the caller's projects
  kMember,      // in the project of the request's parent
  kOwner,       // a member who owns the object, or a maintainer
  kMaintainer,  // in the project of the request's name or parent
  kOperator,
  kAdmin,
};

struct AccessRow {
  std::string_view method;
  Need need;
  // The request's field with the object's full name, or with the parent project; empty for calls that
  // concern no project.
  std::string_view field;
};

/// Returns a row for every method of every public service, by service and in the proto's order.
std::span<const AccessRow> access_rows();

class Access {
 public:
  Access(const People& people, Store& store) : people_(people), store_(store) {}

  /// Returns whether the principal may make the call. NOT_FOUND / PROJECT_NOT_FOUND, the same whether
  /// or not the project exists; PERMISSION_DENIED / ROLE_REQUIRED, only for what the caller may see.
  /// A malformed or absent name passes: the handler refuses it with a better message. Calls with
  /// Need::kOwner read the store.
  Status check(std::string_view method, const google::protobuf::Message& request,
               const Principal& principal) const;
  const People& people() const { return people_; }

 private:
  const People& people_;
  Store& store_;
};

}  // namespace trainyard::server
