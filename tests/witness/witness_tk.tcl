#!/usr/bin/wish
# A Tk window that writes every input event, with the X server's time stamp, to a file of JSON lines:
# wish witness_tk.tcl FILE [WxH+X+Y]. The text widget's content is in the file's last line after each change.

set log [open [lindex $argv 0] w]
fconfigure $log -encoding utf-8 -buffering line
wm title . "Tk witness"
wm geometry . [expr {[llength $argv] > 1 ? [lindex $argv 1] : "500x400+100+100"}]

text .text -height 8 -font {Sans 12} -undo 0
canvas .pad -background #dde -width 480 -height 200
pack .text -side top -fill both -expand 1
pack .pad -side bottom -fill both

proc quoted {text} {
    set out ""
    foreach char [split $text ""] {
        scan $char %c code
        if {$code < 32 || $code > 126 || $char in [list \" \\]} {
            append out [format \\u%04x $code]
        } else {
            append out $char
        }
    }
    return "\"$out\""
}

proc note {type time widget x y detail state} {
    global log
    puts $log "{\"type\": \"$type\", \"time\": $time, \"on\": \"$widget\", \"x\": $x, \"y\": $y,\
        \"detail\": [quoted $detail], \"state\": $state}"
}

proc content {} {
    global log
    puts $log "{\"type\": \"content\", \"text\": [quoted [.text get 1.0 end-1c]]}"
}

bind all <KeyPress> {+note keydown %t %W %X %Y %K %s}
bind all <KeyRelease> {+note keyup %t %W %X %Y %K %s}
bind all <ButtonPress> {+note mousedown %t %W %X %Y %b %s}
bind all <ButtonRelease> {+note mouseup %t %W %X %Y %b %s}
bind all <Motion> {+note mousemove %t %W %X %Y "" %s}
bind all <Double-ButtonPress> {+note dblclick %t %W %X %Y %b %s}
bind .text <<Modified>> {
    if {[.text edit modified]} {
        .text edit modified 0
        after idle content
    }
}
focus .text
