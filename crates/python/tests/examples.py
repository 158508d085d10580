# The examples of the specification, as it prints them. Run by test_examples.py, which provides `server` and `reven2`.
frame = server.trace.context_before(200000).stack.frame()
print(frame)                                   # #199862 - usbhub!UsbhDecHubBusy
print(frame.function_start())                  # #199862 call 0xfffff800fe4ac010
print(frame.first_context)                     # Context before #199863
loc = frame.function_location()
print(loc, loc is not None and loc.symbol_offset == 0)
for child in frame.children():                 # 1. one level
    print("|-", child)                         #    #199886 …, #200032 …, #200239 …, #200269 …

def tree(frame):                               # 2. all descendants, indented, with stack changes
    depth = 0
    for event in frame.descendant_events():
        if isinstance(event, reven2.stack.FrameStart):
            yield depth, event.frame; depth += 1
        elif isinstance(event, reven2.stack.FrameEnd):
            depth -= 1
        else:
            yield depth, event                 # StackLeave / StackEnter

def html(frame, active, depth=0, max_depth=2, max_children=5):   # 3. an HTML tree; the active frame in <strong>
    ...                                        #    built from frame.children(), frame.ancestors(), frame.format_as_html()

def ranges(frame):                             # 4. when the frame's stack was the active one (fixture B)
    begin = frame.first_context
    for event in frame.descendant_events():
        if isinstance(event, reven2.stack.StackLeave) and begin is not None:
            yield reven2.trace.ContextRange(begin, event.transition.context_before()); begin = None
        elif isinstance(event, reven2.stack.StackEnter):
            begin = event.transition.context_after()
    if begin is not None:
        yield reven2.trace.ContextRange(begin, frame.last_context)

events = frame.descendant_events()             # 5. leave out what lies below a binary
for event in events:
    if isinstance(event, reven2.stack.FrameStart):
        loc = event.frame.function_location()
        if loc is not None and loc.binary.name == "ntoskrnl":
            events.skip_children(); continue
    print(event)
