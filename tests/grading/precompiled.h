// common/precompiled.h for what judges, and for tests.
#pragma once

#include <gtest/gtest.h>

#include "common/precompiled.h"
