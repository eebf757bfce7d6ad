-- lua's pattern matching in lua itself, so that a count hook counts its work too: in C a single call counts as one
-- instruction, however long it takes. For what soda's patterns use: sets, single characters, * + ? and captures. Every
-- answer is compared with that of the real function.

local real = { find = string.find, match = string.match, gmatch = string.gmatch, gsub = string.gsub }
local byte, char, sub = string.byte, string.char, string.sub

-- The bytes of one item of a pattern as a set, and where the next begins.
local function set_at(pattern, at)
    local set, last = {}, at
    local first = char(byte(pattern, at))
    if first == "%" then
        last = at + 1
    elseif first == "[" then
        last = real.find(pattern, "]", at + 2, true)
    end
    local item = sub(pattern, at, last)
    for code = 0, 255 do
        set[code] = real.find(char(code), item) ~= nil
    end
    return set, last + 1
end

local function compile(pattern)
    local items, opened, captures, at = {}, {}, 0, 1
    if sub(pattern, 1, 1) == "^" then
        items.anchored, at = true, 2
    end
    while at <= #pattern do
        local letter = sub(pattern, at, at)
        if letter == "(" then
            captures = captures + 1
            opened[#opened + 1] = captures
            items[#items + 1], at = { opens = captures }, at + 1
        elseif letter == ")" then
            items[#items + 1], at = { closes = table.remove(opened) }, at + 1
        elseif letter == "$" and at == #pattern then
            items[#items + 1], at = { ends = true }, at + 1
        else
            local item = {}
            item.set, at = set_at(pattern, at)
            local times = sub(pattern, at, at)
            if times == "*" or times == "+" or times == "?" then
                item.times, at = times, at + 1
            end
            items[#items + 1] = item
        end
    end
    items.captures = captures
    return items
end

local compiled = {}

-- Where a match of the items from `index` on ends that begins at `at`, or nil.
local function matched(items, index, text, at, from, to)
    local item = items[index]
    if not item then
        return at
    elseif item.opens then
        from[item.opens] = at
        return matched(items, index + 1, text, at, from, to)
    elseif item.closes then
        to[item.closes] = at - 1
        return matched(items, index + 1, text, at, from, to)
    elseif item.ends then
        return at == #text + 1 and matched(items, index + 1, text, at, from, to) or nil
    elseif not item.times then
        return item.set[byte(text, at)] and matched(items, index + 1, text, at + 1, from, to) or nil
    end
    local last = at
    while item.set[byte(text, last)] and (item.times ~= "?" or last == at) do
        last = last + 1
    end
    for stop = last, item.times == "+" and at + 1 or at, -1 do
        local done = matched(items, index + 1, text, stop, from, to)
        if done then
            return done
        end
    end
    return nil
end

-- First and last byte of the first match from `start` on, and its captures; nil where there is none.
local function search(text, pattern, start)
    local items = compiled[pattern] or compile(pattern)
    compiled[pattern] = items
    for at = start, items.anchored and start or #text + 1 do
        local from, to = {}, {}
        local stop = matched(items, 1, text, at, from, to)
        if stop then
            local found = {}
            for index = 1, items.captures do
                found[index] = sub(text, from[index], to[index])
            end
            return at, stop - 1, found
        end
    end
    return nil
end

local unpack = table.unpack or unpack

local function same(name, ours, ...)
    local theirs = { real[name](...) }
    assert(#ours == #theirs, name)
    for index = 1, #ours do
        assert(ours[index] == theirs[index], name)
    end
    return unpack(ours)
end

function string.match(text, pattern)
    local first, last, found = search(text, pattern, 1)
    local answer = first and (#found > 0 and found or { sub(text, first, last) }) or { nil }
    return same("match", answer, text, pattern)
end

function string.find(text, pattern, start, plain)
    if plain then
        for _ = 1, #text do end
        return real.find(text, pattern, start, plain)
    end
    local first, last, found = search(text, pattern, start or 1)
    return same("find", first and { first, last, unpack(found) } or { nil }, text, pattern, start)
end

function string.gmatch(text, pattern)
    local theirs, start = real.gmatch(text, pattern), 1
    return function()
        local first, last, found = search(text, pattern, start)
        local answer = first and (#found > 0 and found or { sub(text, first, last) }) or { nil }
        start = first and math.max(last, first) + 1 or #text + 2
        local expected = { theirs() }
        assert(#expected == #answer and expected[1] == answer[1] and expected[2] == answer[2], "gmatch")
        return unpack(answer)
    end
end

function string.gsub(text, pattern, by)
    local start, first, last = 1, nil, nil
    repeat
        first, last = search(text, pattern, start)
        start = first and math.max(last, first) + 1
    until not first or start > #text
    return real.gsub(text, pattern, by)
end

-- Instructions that a call takes, in hundreds; it is stopped by an error once they are more than `most`.
function counted(most, call, ...)
    local hundreds = 0
    debug.sethook(function()
        hundreds = hundreds + 1
        if hundreds > most then
            error("too much work", 0)
        end
    end, "", 100)
    local fine, problem = pcall(call, ...)
    debug.sethook()
    if not fine and problem ~= "too much work" then
        error(problem, 0)
    end
    return hundreds
end
